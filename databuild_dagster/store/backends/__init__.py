"""SQLite and PostgreSQL side by side, under the one protocol of `base`; `open` knows which url is whose."""
