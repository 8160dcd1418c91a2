"""Bytes on a disk or in an object store: where an instance lies, and the manifest that says what it holds. Knows
no Spark and no Dagster.

Nothing here lists a directory to find out what to read: a manifest names the files, and what it does not name
is not data. Only the functions that open a data file import pyarrow, and fsspec only where the warehouse is a url."""
