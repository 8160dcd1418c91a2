"""`databuild history REF`: every instance of a ref, with who asked for it and why it ended (rules 3.2, 4.2)."""

from collections.abc import Sequence
from typing import Final

import click

from databuild_dagster.cli.known_refs import canonical_of
from databuild_dagster.cli.options import Selection, as_of, moment, one_by_one, selection, tabular
from databuild_dagster.cli.output import emit, table
from databuild_dagster.cli.state import the_engine
from databuild_dagster.data.read_plan import Moment, store_at
from databuild_dagster.engine.why.history import ShownInstance, history_of
from databuild_dagster.engine.wording import when
from databuild_dagster.model.fold.demands import DERIVATIVE
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.wording import few_of
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.queries.wants import Asker

#: Askers that are named in the table; --json names all.
SHOWN_ASKERS: Final = 3


@click.command()
@selection
@as_of
@tabular
def history(selection: Selection, as_of: str | None, as_json: bool) -> None:
    """List every instance of REFS, newest last.

    Each instance has the person who asked for it, the job run, the inputs, and the reason of its state. The star marks the
    canonical instance, which readers see. With --as-of, the history of that time. The log is folded up to that time, which
    takes as long as `databuild log rebuild`.
    """
    engine = the_engine()
    queries, then = engine.queries, moment(engine.queries, as_of)
    refs = selection.refs(queries)
    for ref in refs:
        canonical_of(queries, ref)
    with store_at(engine.store, then) as store:
        for ref in one_by_one(refs, as_json=as_json, titled=True):
            _history(Queries(store), ref, then, as_json=as_json)


def _history(queries: Queries, ref: Ref, then: Moment, *, as_json: bool) -> None:
    found = history_of(queries, ref)
    if as_json:
        emit(found)
        return
    rows = [_row(ref, shown) for shown in found]
    columns = (
        "*", "instance", "state", "seq", "created", "live", "asked by", "by", "job run", "previous", "built from",
        "why",
    )  # fmt: skip
    hidden = ("seq", "created", "by", "job run", "previous", "built from")
    empty = f"Nothing has built {ref} yet." if then.seq is None else f"Nothing had built {ref}{then.when}."
    table(columns, rows, empty=empty, wide_only=hidden)


def _row(ref: Ref, instance: ShownInstance) -> tuple[object, ...]:
    return (
        "*" if instance.canonical else "",
        instance.uuid,
        instance.state,
        instance.seq,
        when(instance.at),
        when(instance.live_since),
        asked_by(ref, instance.asked_by),
        instance.actor,
        instance.job_run,
        instance.previous_uuid,
        f"{len(instance.inputs)} instances" if instance.inputs else None,
        instance.why,
    )


def asked_by(ref: Ref, askers: Sequence[Asker]) -> str | None:
    """The askers, without job runs if people or arcs asked: a job run's want only says that something needed the ref."""
    themselves = [asker for asker in askers if asker.source != DERIVATIVE] or list(askers)
    return few_of(list(dict.fromkeys(_asker_in_words(ref, asker) for asker in themselves)), SHOWN_ASKERS) or None


def _asker_in_words(ref: Ref, asker: Asker) -> str:
    wanted = "" if asker.refs == (ref,) else f" for {few_of(asker.refs, 1)}"
    # The command line's own words, where no reason was given.
    return f"{asker.actor}{wanted}" + (f" ({asker.comment})" if asker.comment else "")
