"""What can go wrong with Spark before or around a build; what goes wrong inside one is told by `failures`."""

from __future__ import annotations

from databuild_dagster.model.errors import DatabuildError, Refused


class JavaMissing(DatabuildError):
    """Spark needs Java {needed} or newer, and {found}."""

    hint = "Install one (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME to it."


class SparkUnreachable(DatabuildError):
    """No Spark server answers at {host}:{port} ({why})."""

    hint = "Run `databuild spark stop` and try again: the next session starts another one."


class ServerFailed(DatabuildError):
    """The local Spark server did not start: {why}."""

    hint = "Its log is {log}."


class TooManyServers(Refused):
    """{count} local Spark servers with other settings are in use below {folder}, as many as there may be."""

    hint = "Use the settings of one of them, or wait until its users have ended (`databuild spark status`)."


class SessionModesMixed(Refused):
    """This process has a {present} Spark session already, so it cannot open a {wanted} one."""

    hint = "PySpark keeps one kind per process: use one mode in all assets of a code location."


class NotAFrame(Refused):
    """{ref} was given a {found}, which cannot be written."""

    hint = "Return a Spark DataFrame, a pandas DataFrame or an Arrow table."


class UnsupportedColumn(Refused):
    """{ref} cannot be written as the pandas DataFrame or Arrow table it is: {why}."""

    hint = "Convert that column first, for example with .astype()."


class NoSchema(Refused):
    """There is no instance to read, so the columns of {what} are not known."""

    hint = "Give `schema=`, or build the ref first."


class SchemasDiffer(Refused):
    """Column {column!r} is {one} in instance {one_uuid} and {other} in instance {other_uuid} of {asset}."""

    hint = "Taint the older one, so that it is built again with today's columns."
