"""SQLite and PostgreSQL under the protocol of `base`; `open` maps a url to its database."""
