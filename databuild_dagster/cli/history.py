"""`databuild history REF`: every instance of a ref, with who asked for it and why it ended (SPEC 3.2, 4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import click

from databuild_dagster.cli.options import REF, tabular
from databuild_dagster.cli.output import emit, table, when
from databuild_dagster.cli.partitions import canonical_of
from databuild_dagster.cli.state import the_queries
from databuild_dagster.engine.who_asked import who_asked
from databuild_dagster.model.fold.standing import DERIVATIVE
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.removals import REMOVED
from databuild_dagster.model.states import InstanceState
from databuild_dagster.model.wording import few_of
from databuild_dagster.store.queries.instances import Instance
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.queries.wants import Asker

#: Askers that are named in the table; --json names all.
SHOWN_ASKERS: Final = 3


@click.command()
@click.argument("ref", type=REF)
@tabular
def history(ref: Ref, as_json: bool) -> None:
    """List every instance of REF, newest last.

    For each: who asked for it, what built it, from which inputs, and why it is in its state.
    """
    queries = the_queries()
    canonical_of(queries, ref)
    instances = queries.history(ref)
    askers = who_asked(queries, [each.uuid for each in instances])
    reasons = _reasons(queries, instances)
    if as_json:
        emit([_as_json(each, askers[each.uuid], reasons[each.uuid]) for each in instances])
        return
    rows = [
        (
            each.uuid + (" *" if each.canonical else ""),
            each.state.value,
            each.seq,
            when(each.at),
            when(each.live_at),
            _asked_by(ref, askers[each.uuid]),
            each.actor,
            each.job_run,
            f"{len(each.inputs)} instances" if each.inputs else None,
            reasons[each.uuid],
        )
        for each in instances
    ]
    columns = (
        "instance (* canonical)", "state", "seq", "created", "live", "asked by", "by", "job run", "built from", "why",
    )  # fmt: skip
    table(
        columns,
        rows,
        empty=f"Nothing has built {ref} yet.",
        wide_only=("seq", "created", "by", "job run", "built from"),
    )


def _as_json(instance: Instance, askers: Sequence[Asker], reason: str | None) -> dict[str, object]:
    return {
        "uuid": instance.uuid,
        "state": instance.state.value,
        "seq": instance.seq,
        "at": when(instance.at),
        "job_run": instance.job_run,
        "inputs": list(instance.inputs),
        "canonical": instance.canonical,
        "live_since": when(instance.live_at),
        "actor": instance.actor,
        "asked_by": [
            {
                "want": each.want_id,
                "request_id": each.request_id,
                "refs": list(each.refs),
                "source": each.source,
                "source_id": each.source_id,
                "actor": each.actor,
                "comment": each.comment,
                "at": when(each.at),
            }
            for each in askers
        ],
        "why": reason,
    }


def _asked_by(ref: Ref, askers: Sequence[Asker]) -> str | None:
    """Those who asked by themselves; a want of a job run only says that something needed it."""
    themselves = [each for each in askers if each.source != DERIVATIVE] or list(askers)
    return few_of(list(dict.fromkeys(_told(ref, each) for each in themselves)), SHOWN_ASKERS) if themselves else None


def _told(ref: Ref, asker: Asker) -> str:
    wanted = "" if asker.refs == (ref,) else f" for {few_of(asker.refs, 1)}"
    # The command line's own words, where nobody has said why.
    return f"{asker.actor}{wanted}" + (f" ({asker.comment})" if asker.comment else "")


def _reasons(queries: Queries, instances: Sequence[Instance]) -> dict[str, str | None]:
    """Why each is in its state, or is not what readers see any more."""
    taints = queries.taints_in_force(each.uuid for each in instances)
    now = next((each for each in instances if each.canonical), None)
    reasons: dict[str, str | None] = {}
    for place, each in enumerate(instances):
        told = ["data removed"] if each.manifest_state == REMOVED else []
        if held := taints.get(each.uuid):
            told += [f"tainted by {taint.actor}: {taint.reason} ({taint.taint_id})" for taint in held]
        elif each.reason:
            told.append(each.reason)
        elif each.state is InstanceState.LIVE and now is not None and not each.canonical:
            newer = instances[place + 1 :]
            told.append(f"replaced by {newer[0].uuid}" if now in newer else f"readers went back to {now.uuid}")
        reasons[each.uuid] = "; ".join(told) or None
    return reasons
