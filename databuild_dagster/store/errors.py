"""Errors of the database itself."""

from databuild_dagster.model.errors import DatabuildError, Refused


class StoreUnusable(DatabuildError):
    """The build state in {url} cannot be used: {why}."""

    hint = "Check its permissions and the free space of its disk or server, then try again: nothing was half-recorded."


class HeartbeatsUnusable(StoreUnusable):
    """The heartbeats of running jobs, in {url} beside the build state, cannot be used: {why}."""


class StoreSilent(StoreUnusable):
    """The build state in {url} does not answer: {why}."""

    hint = "Check that its server runs and that the network leads to it; `connect_timeout` in the url bounds the wait."


class StoreAway(StoreUnusable):
    """The build state in {url} is away: {why}."""

    hint = (
        "Its server refuses connections, is starting or only reads: run the command again when it is there. `connect_timeout` in "
        "the url, three times, bounds the wait."
    )


class StoreCut(StoreAway):
    """The connection to the build state in {url} was cut: {why}."""

    hint = "Its server was restarted, failed over or closed the connection: run the command again."


class StoreBusy(StoreUnusable):
    """The build state in {url} is busy: {why}."""

    hint = (
        "Another process writes for a long time, or a query does not end: look at pg_stat_activity, then try again. "
        "`options=-cstatement_timeout%3D30min` in the url changes the bound; `lock_timeout` is the one for other writers."
    )


class StoreLocked(StoreBusy):
    """The build state in {url} is busy: {why}."""

    hint = "Another program keeps the file locked, such as a database browser or a backup: end it, then try again."


class StoreReplaced(StoreUnusable):
    """The build state in {url} was moved, replaced or written by others after this process had opened it."""

    hint = "This command recorded nothing. Run it again; restart a daemon, a web server or a code server."


class LogWentBack(StoreReplaced):
    """The build state in {url} went back: {why}. Was a replica that lagged or a restored copy started in its place?"""

    hint = (
        "Nothing was recorded. Start the server or the file that has these events; if they are lost, `databuild log take-over "
        "--yes` accepts the log as it is now. Then restart the daemon, the web server and the code servers."
    )


class StoreDamaged(StoreUnusable):
    """The build state in {url} is damaged: {why}."""

    hint = (
        "Copy the file away. `databuild log check --deep` names what is damaged, and `databuild log rebuild` computes the "
        "tables again from the log. If they end with this message too, restore the last backup: `{restore}`."
    )


class NoDatabase(StoreDamaged):
    """The build state in {url} cannot be opened: {path} is not a database."""

    hint = (
        "If DATABUILD_DB_URL names the wrong file, correct it. If this was the build state, its first bytes are lost: copy "
        "the file away, and restore the last backup: `{restore}`."
    )


class ForeignDatabase(StoreUnusable):
    """The build state in {url} cannot be used: {why}."""

    hint = "Name another place in DATABUILD_DB_URL; if this was the build state, restore its last copy."


class NetworkFileSystem(StoreUnusable):
    """The build state in {url} would be on a network file system ({kind}), where SQLite's locks do not hold."""

    hint = "Keep it on a disk of this machine, or in PostgreSQL when several machines need it: set DATABUILD_DB_URL."


class StoreInMemory(DatabuildError):
    """DATABUILD_DB_URL is {url}, a database in memory, which would be lost with the process."""

    hint = "Name a file, sqlite:////path/to/databuild.db, or a PostgreSQL database, or leave it unset."


class MissingDriver(DatabuildError):
    """The build state in PostgreSQL needs psycopg, which is not installed here."""

    hint = "Install it: pip install 'databuild-dagster[postgres]'."


class NewerStore(DatabuildError):
    """The build state in {url} was written by a newer databuild_dagster ({found}; this one knows {known})."""

    hint = "Upgrade the package here: pip install --upgrade databuild_dagster."


class OlderProjection(DatabuildError):
    """The build state in {url} is an older version's ({found}; this one needs {known})."""

    hint = "Run `databuild log migrate`: the log is untouched, the tables are computed again from it."


class BackupRefused(DatabuildError):
    """The build state cannot be copied to {path}: {why}."""

    hint = "Name a new file in a folder that you can write to."


class ExportRefused(DatabuildError):
    """The event log cannot be written to {path}: {why}."""

    hint = "Name a new file in a folder that you can write to."


class ExportDamaged(Refused):
    """{path} cannot be imported: {why}."""

    hint = "Nothing was changed. Name a file that `databuild log export` wrote."


class StoreNotEmpty(Refused):
    """The build state in {url} has {n:,} events already, and an import needs an empty one."""

    hint = "Name another database or DAGSTER_HOME, or import into a new schema of PostgreSQL."


class NotOneFile(DatabuildError):
    """The build state in {url} is not one file, so it cannot be copied as one."""

    hint = "Use PostgreSQL's own tool: pg_dump -n SCHEMA."


class UnsupportedDatabase(DatabuildError):
    """{url} is not a database that this version supports."""

    hint = (
        "Use sqlite:////path/to/databuild.db or postgresql+psycopg://user:password@host/database in DATABUILD_DB_URL, "
        "or leave it unset."
    )


class AtInPassword(DatabuildError):
    """{url} has an @ in its password or options, so its host is not clear."""

    hint = "Write it percent-encoded: %40 for @, %3A for :, %2F for /."
