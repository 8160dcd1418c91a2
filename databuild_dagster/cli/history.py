"""`databuild history REF`: every instance of a ref, with who asked for it and why it ended (rules 3.2, 4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import click

from databuild_dagster.cli.options import Selection, as_of, moment, one_by_one, selection, tabular
from databuild_dagster.cli.output import emit, picked, table, when
from databuild_dagster.cli.partitions import canonical_of
from databuild_dagster.cli.state import the_engine
from databuild_dagster.data.read_plan import Moment, store_at
from databuild_dagster.engine.who_asked import who_asked
from databuild_dagster.model.fold.demands import DERIVATIVE
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.removals import REMOVED
from databuild_dagster.model.states import InstanceState, JobRunState
from databuild_dagster.model.wording import few_of
from databuild_dagster.store.queries.instances import Instance
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.queries.wants import Asker

#: Askers that are named in the table; --json names all.
SHOWN_ASKERS: Final = 3
#: Inputs that an instance missed, of which the reason names so many.
SHOWN_INPUTS: Final = 3
#: The reason of an instance without one of its own, by the state of its job run.
ENDED_AS: Final = {
    JobRunState.DEP_MISSED: "another output of its job run waited for inputs",
    JobRunState.CANCELED: "its job run was canceled",
}


@click.command()
@selection
@as_of
@tabular
def history(selection: Selection, as_of: str | None, as_json: bool) -> None:
    """List every instance of REFS, newest last.

    For each: who asked for it, what built it, from which inputs, and why it is in its state. The star marks the canonical
    one, which readers see. With --as-of, as it was then; the log is folded up to there for it, which takes as long as
    `databuild log rebuild`.
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
    instances = queries.history(ref)
    askers = who_asked(queries, [instance.uuid for instance in instances])
    reasons = _reasons(queries, instances)
    if as_json:
        emit([_as_json(instance, askers[instance.uuid], reasons[instance.uuid]) for instance in instances])
        return
    rows = [
        (
            "*" if instance.canonical else "",
            instance.uuid,
            instance.state.value,
            instance.seq,
            when(instance.at),
            when(instance.live_at),
            asked_by(ref, askers[instance.uuid]),
            instance.actor,
            instance.job_run,
            instance.previous_uuid,
            f"{len(instance.inputs)} instances" if instance.inputs else None,
            reasons[instance.uuid],
        )
        for instance in instances
    ]
    columns = (
        "*", "instance", "state", "seq", "created", "live", "asked by", "by", "job run", "previous", "built from",
        "why",
    )  # fmt: skip
    hidden = ("seq", "created", "by", "job run", "previous", "built from")
    empty = f"Nothing has built {ref} yet." if then.seq is None else f"Nothing had built {ref}{then.when}."
    table(columns, rows, empty=empty, wide_only=hidden)


def _as_json(instance: Instance, askers: Sequence[Asker], reason: str | None) -> dict[str, object]:
    return {
        **picked(instance, "uuid", "previous_uuid", "state", "seq", "job_run", "inputs", "canonical", "actor"),
        "at": when(instance.at),
        "live_since": when(instance.live_at),
        "asked_by": [
            picked(asker, "request_id", "refs", "source", "source_id", "actor", "comment")
            | {"want": asker.want_id, "at": when(asker.at)}
            for asker in askers
        ],
        "why": reason,
    }


def asked_by(ref: Ref, askers: Sequence[Asker]) -> str | None:
    """Those who asked by themselves; a want of a job run only says that something needed it."""
    themselves = [asker for asker in askers if asker.source != DERIVATIVE] or list(askers)
    return few_of(list(dict.fromkeys(_asker_in_words(ref, asker) for asker in themselves)), SHOWN_ASKERS) or None


def _asker_in_words(ref: Ref, asker: Asker) -> str:
    wanted = "" if asker.refs == (ref,) else f" for {few_of(asker.refs, 1)}"
    # The command line's own words, where no reason was given.
    return f"{asker.actor}{wanted}" + (f" ({asker.comment})" if asker.comment else "")


def _reasons(queries: Queries, instances: Sequence[Instance]) -> dict[str, str | None]:
    """Why each is in its state, or is not what readers see any more."""
    taints = queries.taints_in_force(instance.uuid for instance in instances)
    now = next((instance for instance in instances if instance.canonical), None)
    silent = {instance.uuid: instance.job_run for instance in instances if not instance.reason}
    missed, job_runs = queries.missed(silent), queries.job_runs_named(silent.values())
    reasons: dict[str, str | None] = {}
    for place, instance in enumerate(instances):
        words = ["data removed"] if instance.manifest_state == REMOVED else []
        if held := taints.get(instance.uuid):
            words += [f"tainted by {taint.actor}: {taint.reason} ({taint.taint_id})" for taint in held]
        elif instance.reason:
            words.append(instance.reason)
        elif instance.state is InstanceState.LIVE and now is not None and not instance.canonical:
            newer = instances[place + 1 :]
            words.append(f"replaced by {newer[0].uuid}" if now in newer else f"readers went back to {now.uuid}")
        elif instance.state in (InstanceState.UP_FOR_RETRY, InstanceState.UPSTREAM_BUILDING):
            inputs = few_of(missed.get(instance.uuid, ()), SHOWN_INPUTS)
            verb = "waits" if instance.state is InstanceState.UPSTREAM_BUILDING else "waited"
            ended = ENDED_AS.get(job_runs[instance.job_run].state, "")
            words += [f"{verb} for inputs: {inputs}"] if inputs else [ended] if ended else []
        reasons[instance.uuid] = "; ".join(words) or None
    return reasons
