"""PySpark: sessions, and instances as frames. Imports no Dagster.

Functions import PySpark when they need it: the import takes half a second, which commands that only read the store save."""
