"""The only place that knows PySpark: sessions, and instances as frames. Knows no Dagster.

PySpark is imported by the functions that need it: the import costs half a second, which a command that only asks the
store should not pay."""
