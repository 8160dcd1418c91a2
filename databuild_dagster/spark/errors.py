"""Errors of Spark before or around a build; `failures` explains errors inside a build."""

from databuild_dagster.model.errors import DatabuildError, Refused


class NoSession(DatabuildError):
    """This process can open no Spark session."""


class JavaMissing(NoSession):
    """Spark needs Java {needed} or newer, and {found}."""

    hint = (
        "Install one (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME to it; "
        "or let pip bring one: pip install 'databuild-dagster[java]'."
    )


class SailMissing(NoSession):
    """Sail is not installed for {python}."""

    hint = "pip install 'databuild-dagster[sail]', or leave out mode='sail' to have Spark's own server, which needs a Java."


class PySparkMissing(NoSession):
    """No PySpark is installed for {python}."""

    hint = (
        "pip install databuild-dagster, which brings Spark; or the client of a Spark that runs elsewhere: "
        "pip install 'databuild-dagster-core[connect]' or 'databuild-dagster-core[databricks]'."
    )


class PySparkTwice(NoSession):
    """{found} are installed together for {python}, and each has overwritten files of the other's module pyspark."""

    hint = "Remove them all, then install one: pip uninstall -y {names}."


class PySparkTooOld(NoSession):
    """{found} is older than {oldest}, the oldest that works."""

    hint = "Install a newer one: pip install --upgrade {name}."


class PySparkDiffers(NoSession):
    """{found} lacks a name that this version of databuild_dagster uses: {name}."""

    hint = "Install a PySpark of the table in the README, or a newer databuild_dagster."


class NoSparkHere(NoSession):
    """mode={mode!r} needs more than {found}, which has no {lacks}."""

    hint = "Use {instead}mode='sail' (pip install 'databuild-dagster[sail]'), or mode='remote' with the url of a Spark."


class SparkUnreachable(NoSession):
    """No Spark server answers at {host}:{port} ({why})."""

    hint = "Run `databuild spark --stop` and try again: the next session starts another one."


class RemoteUnreachable(SparkUnreachable):
    """The Spark of {url} does not answer at {host}:{port} ({why})."""

    hint = "Start it, or correct the url of DatabuildSpark(mode='remote', url=…)."


class WarehouseOutOfReach(NoSession, Refused):
    """The warehouse {root} cannot be {done} by the Spark of {spark}: {why}."""

    hint = (
        "Give that Spark the file system and the credentials of the url, or set a warehouse that it and this process "
        "both see: build_definitions(…, warehouse='s3://bucket/prefix')."
    )


class FilesOutOfReach(Refused):
    """Files in {place} cannot be read by the Spark of {spark}: {why}."""

    hint = "Let that Spark see them, or build their refs again, into the warehouse of today: `databuild build --rebuild REF`."


class StoreRefusesSpark(WarehouseOutOfReach):
    """The warehouse {root} cannot be {done} by the Spark of {spark}: {why}."""

    hint = "{advice}"


class SparkRefuses(NoSession):
    """The Spark of {spark} runs no job: {why}."""

    hint = "Check that it runs, its token, and that its version fits the PySpark here, which is {version}."


class SparkRunsNoJob(SparkRefuses):
    """The Spark of {spark} runs no job: a job of one row is not done after {seconds:.0f} s{where}."""

    hint = "Check that it has workers, that these can connect, and that other jobs leave some free, then try again."


class AttemptIncomplete(DatabuildError):
    """What Spark wrote into {folder} is not what it reports: {why}."""

    hint = "The ref is retried, and the next attempt has a folder of its own."


class BadSparkUrl(NoSession, Refused):
    """{url!r} is no address of a Spark: {why}."""

    hint = (
        "Give sc://host:port of a Spark Connect server, or a master: spark://host:port, yarn, k8s://https://host:port."
    )


class FixedSetting(NoSession, Refused):
    """{setting} is fixed when Spark starts, so {what} cannot change it."""

    hint = "Set it in spark_config of the DatabuildSpark resource that starts Spark, or on the cluster itself."


class BadSetting(NoSession, Refused):
    """{what} is not a Spark configuration: {why}."""

    hint = 'Give a JSON object such as {{"spark.sql.shuffle.partitions": 16}}.'


class ServerFailed(NoSession):
    """The local Spark server did not start: {why}."""

    hint = "Its log is {log}."


class StrangeFolder(NoSession):
    """{folder} cannot hold the files of a Spark server: {why}."""

    hint = "Remove it, or set DAGSTER_HOME: a home has a folder of its own for them."


class ServerOfAnotherUser(NoSession, Refused):
    """The Spark server of {folder}, process {pid}, runs as the user with id {theirs}, and this process as the one with id {ours}."""

    hint = "Build as that user, stop the server by `databuild spark --stop`, or set DAGSTER_HOME: a home has one user."


class NoTemporaryFolder(NoSession):
    """Temporary files have no place: {why}."""

    hint = "Set TMPDIR to a folder that this user can write to."


class TooManyServers(NoSession, Refused):
    """{count} local Spark servers with other settings are in use below {folder}, which is the limit."""

    hint = "Use the settings of one of them, or wait until its users have ended (`databuild spark`)."


class SessionModesMixed(NoSession, Refused):
    """This process has a {present} Spark session already, so it cannot open a {wanted} one."""

    hint = (
        "PySpark keeps one kind per process: use one mode in all assets of a code location; in tests, let a fixture with a session of "
        'its own run first (scope="session", autouse=True).'
    )


class NotAFrame(Refused):
    """{ref} was given a {found}, which cannot be written."""

    hint = "Return a Spark DataFrame, a pandas or Polars DataFrame, or an Arrow table."


class PolarsMissing(Refused):
    """This Python has no Polars, so it has no Polars frames."""

    hint = "pip install polars, or read with format='pandas' or format='arrow'."


class UnsupportedColumn(Refused):
    """The frame of {ref} cannot be written: {why}."""

    hint = "Convert that column first, for example with .astype() of pandas or .cast() of Polars."


class ColumnsAlike(Refused):
    """{ref} cannot become live: Spark takes its column {one!r} for {other!r}{of}."""

    hint = "Give each column one name: readers by Spark do not tell upper from lower case."


class NoSchema(Refused):
    """There is no instance to read, so the columns of {what} are not known."""

    hint = "Give `schema=`, or build the ref first."


class SchemasDiffer(Refused):
    """Column {column!r} is {one} in instance {one_uuid} and {other} in instance {other_uuid} of {asset}."""

    hint = "Taint the older instance, so that it is built again with today's columns."


class BadPartitionKeyColumn(Refused):
    """The batch of {asset} {why}, so the partitions of its rows are not known."""

    hint = "A batched asset returns the text column `partition_key` exactly once, as its inputs have it."


class StrayPartitionKeys(Refused):
    """{asset} returned rows for {named}, which is not in its batch of {asked}."""

    hint = "A batched asset returns rows only for the partition keys of its inputs, `context.partition_keys`."


class UnreadableColumn(Refused):
    """Column {column!r} is {type}, and {why}."""

    hint = "Write these files again with another type in that column, such as microseconds (pandas: coerce_timestamps='us')."


class SchemaChanged(Refused):
    """{ref} cannot become live: {why}, unlike {other_ref}."""

    hint = "Return the earlier columns, or set allow_schema_change=True on the asset."


class KeyTooLong(Refused):
    """The partition key {shown} takes {found} bytes as a folder name; a batch allows {most}."""

    hint = "Leave out batched=True, or use shorter keys."


class KeyColumnTaken(Refused):
    """{asset} has a column {column} of its own, so that name cannot hold partition keys."""

    hint = "Give another name, as in table(…, key_column='key'); for a batched asset rename that column upstream."


class ReturnTypeTooEarly(DatabuildError):
    """The Python function {function} has the return type {type!r}, a text that Spark reads, and there is no session yet."""

    hint = "Write it as an object of pyspark.sql.types, such as F.udf({instead}), or decorate inside of the asset's function."


class BadPartColumn(DatabuildError):
    """{asset} cannot be split by {column!r}: {why}."""

    hint = "Name another column in parts=ByKey(…), or list its values there."
