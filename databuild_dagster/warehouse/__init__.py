"""Bytes on a disk or in an object store: the place of an instance, and the manifest that lists its files.

Readers never list a directory: a file that no manifest names is no data. Imports neither Spark nor Dagster; pyarrow only
to open a data file, fsspec only for a url."""
