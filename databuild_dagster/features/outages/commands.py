"""`databuild status --outages`, `pause --needs` and `resume --needs`: what is out of reach, and holds of a person (rule 6.17)."""

import click

from databuild_dagster.cli.options import common, tabular
from databuild_dagster.cli.output import answer, emit, table
from databuild_dagster.cli.state import the_engine
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.holders import this_user
from databuild_dagster.engine.outages import hold, outages, release
from databuild_dagster.engine.why.orchestrators import outages_with_refs
from databuild_dagster.engine.wording import when
from databuild_dagster.model.errors import NoReason, NotFound
from databuild_dagster.model.surroundings import PROBED, Surrounding
from databuild_dagster.model.wording import few_of

_WHAT = click.argument("what", metavar="WHAT", type=click.Choice([what.value for what in PROBED]))
_LOCATION = click.option("--location", help="The code location, if there are several.")


class NoLocation(NotFound):
    """No code location {location!r} has registered assets; there is {known}."""

    hint = "`databuild status` lists the orchestrators of all code locations."


class NothingHeld(NotFound):
    """Nothing holds back launches of {location} that need {what}."""


@click.command()
@tabular
def list_outages(as_json: bool) -> None:
    """Show what is out of reach, and what waits for it.

    An outage begins with a job run that failed by it. It ends when a probe of the orchestrator, or of `databuild build`, passes.
    """
    found = outages_with_refs(the_engine())
    if as_json:
        emit(found)
        return
    table(
        ("what", "location", "since", "waiting", "reason"),
        [(outage.what.value, outage.location, when(outage.since), outage.waiting, outage.reason) for outage in found],
        empty="Nothing is out of reach, and nothing is held back.",
    )


@click.command()
@_WHAT
@_LOCATION
@click.option("--reason", required=True, help="Why. Others read it to know when to release.")
@common
def hold_launches(what: str, location: str | None, reason: str, as_json: bool) -> None:
    """Hold back launches that need WHAT.

    WHAT is spark or warehouse. Wants stay open, and nothing fails. What runs is not stopped.
    """
    if not reason.strip():
        raise NoReason(what="hold", why="others read it to know when to release")
    engine, needed = the_engine(), Surrounding(what)
    here = _location(engine, location)
    hold(engine, here, needed, f"{this_user()}: {reason}", this_user())
    sentence = f"No launch of {here} that needs {needed.in_words} begins until it is resumed."
    answer({"location": here, "what": what}, sentence, as_json=as_json)


@click.command()
@_WHAT
@_LOCATION
@common
def release_launches(what: str, location: str | None, as_json: bool) -> None:
    """Launch what needs WHAT again.

    This ends a hold, and an outage whatever a probe says. A job run that fails by it begins the outage again.
    """
    engine, needed = the_engine(), Surrounding(what)
    here = _location(engine, location)
    if needed not in {known for known, _ in outages(engine, here)}:
        raise NothingHeld(location=here, what=needed.in_words)
    release(engine, here, needed, this_user())
    sentence = f"The next tick of {here} launches what needs {needed.in_words}."
    answer({"location": here, "what": what}, sentence, as_json=as_json)


def _location(engine: Engine, named: str | None) -> str:
    """The code location that is meant. Raises `NoLocation`, and `UsageError` if several are there and none is named."""
    known = sorted({spec.location for spec in engine.queries.datasets.all().values()})
    if named is None and len(known) != 1:
        raise click.UsageError(
            f"Name the code location by --location: {few_of(known) or 'none has registered assets yet'}."
        )
    if named is not None and named not in known:
        raise NoLocation(location=named, known=few_of(known) or "none")
    return known[0] if named is None else named
