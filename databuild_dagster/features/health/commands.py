"""`databuild health`: the checks as a table, and an exit code for monitors and probes."""

import click

from databuild_dagster.cli.options import DURATION, tabular
from databuild_dagster.cli.output import emit, table
from databuild_dagster.cli.process import FAILED, Exit
from databuild_dagster.cli.state import dagster_home, the_engine
from databuild_dagster.data.home import store_url_of_home
from databuild_dagster.features.health.checks import NAMES, Health, SlowStore, Status, look, worst
from databuild_dagster.warehouse.threads import in_own_thread


@click.command()
@click.option(
    "--check", "checks", type=click.Choice(NAMES), multiple=True, help="Only this check; may be given several times."
)
@click.option(
    "--timeout",
    type=DURATION,
    default="2s",
    show_default=True,
    metavar="DURATION",
    help="The log is away if it has not answered after this time.",
)
@tabular
def health(checks: tuple[str, ...], timeout: float, as_json: bool) -> None:
    """Check the log, orchestrators, versions and outages.

    Exit codes: 0 all is right. 1 a check warns: a person has something to do, and this process can do its work. 2 the log went back,
    was replaced, or has another version. 75 the log is away. No code of yours is loaded; Dagster is, if dagster.yaml says where the
    log is and DATABUILD_DB_URL does not.
    """
    if store_url_of_home(dagster_home()) is None:
        # Its seconds are not those of the log.
        import databuild_dagster.bindings.registry.instance  # noqa: F401
    try:
        found = in_own_thread(lambda: look(the_engine(), checks), "databuild health").result(timeout)
    except TimeoutError:
        raise SlowStore(seconds=timeout) from None
    status = worst(found)
    if as_json:
        emit(Health(status, found))
    else:
        table(("check", "status", "says"), [(one.check, one.status.value, one.says) for one in found], empty="")
    if status is Status.WARNING:
        raise Exit(FAILED)
