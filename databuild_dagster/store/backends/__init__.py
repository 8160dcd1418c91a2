"""SQLite and PostgreSQL under the one protocol of `base`; `open` maps a url to its database."""
