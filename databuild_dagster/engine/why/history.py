"""The instances of a ref with who asked for each and why it ended, as JSON has them (rules 15, 4.2)."""

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Final

import msgspec

from databuild_dagster.engine.why.want_report import who_asked
from databuild_dagster.model.records import Time, extended
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.removals import REMOVED
from databuild_dagster.model.states import InstanceState, JobRunState
from databuild_dagster.model.wording import few_of
from databuild_dagster.store.queries.asking import MAX_SEQ
from databuild_dagster.store.queries.instances import Instance
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.queries.wants import Asker

#: Inputs that an instance missed, of which the reason names so many.
SHOWN_INPUTS: Final = 3
#: The reason of an instance without a recorded reason, by the state of its job run.
ENDED_AS: Final = {
    JobRunState.DEP_MISSED: "another output of its job run waited for inputs",
    JobRunState.CANCELED: "its job run was canceled",
}


class ShownInstance(msgspec.Struct, frozen=True):
    """A build of a ref."""

    uuid: str
    previous_uuid: str | None
    state: InstanceState
    seq: int
    job_run: str
    inputs: Sequence[str]
    canonical: bool
    actor: str
    at: Time
    live_since: Time | None
    asked_by: Sequence[Asker]
    why: str | None


def history_of(queries: Queries, ref: Ref, most: int = MAX_SEQ, most_inputs: int | None = None) -> list[ShownInstance]:
    """The instances of a ref, or the newest `most`, oldest first, each with all inputs or the first `most_inputs`."""
    instances = queries.instances.history(ref, most, most_inputs)
    askers = who_asked(queries, [instance.uuid for instance in instances])
    reasons = _reasons(queries, instances)
    return [
        extended(
            ShownInstance,
            instance,
            live_since=instance.live_at,
            asked_by=askers[instance.uuid],
            why=reasons[instance.uuid],
        )
        for instance in instances
    ]


def _reasons(queries: Queries, instances: Sequence[Instance]) -> dict[str, str | None]:
    """Why each is in its state, or is not what readers see any more."""
    taints = queries.instances.taints_in_force(instance.uuid for instance in instances)
    place_of_now = next((place for place, instance in enumerate(instances) if instance.canonical), None)
    silent = {instance.uuid: instance.job_run for instance in instances if not instance.reason}
    rows_of = queries.instances.first_with_rows((instance.uuid for instance in instances), with_erased=False)
    missed, job_runs = queries.instances.missed(silent), queries.job_runs.named(silent.values())
    reasons: dict[str, str | None] = {}
    for place, instance in enumerate(instances):
        words = ["data removed"] if instance.manifest_state == REMOVED else []
        if held := taints.get(instance.uuid):
            words += [f"tainted by {taint.actor}: {taint.reason} ({taint.taint_id})" for taint in held]
            # A retry is a taint, too: the error that it is for stays seen.
            words += [f"it failed with: {instance.reason}"] if instance.reason else []
        elif instance.reason:
            words.append(instance.reason)
        elif instance.state is InstanceState.LIVE and place_of_now is not None and place < place_of_now:
            words.append(f"replaced by {instances[place + 1].uuid}")
        elif instance.state is InstanceState.LIVE and place_of_now is not None and place > place_of_now:
            words.append(f"readers went back to {instances[place_of_now].uuid}")
        elif instance.state in (InstanceState.UP_FOR_RETRY, InstanceState.UPSTREAM_BUILDING):
            inputs = few_of(missed.get(instance.uuid, ()), SHOWN_INPUTS)
            verb = "waits" if instance.state is InstanceState.UPSTREAM_BUILDING else "waited"
            ended = ENDED_AS.get(job_runs[instance.job_run].state, "")
            if said := f"{verb} for inputs: {inputs}" if inputs else ended:
                words.append(said)
        elif instance.origin is not None:
            words.append(f"{instance.origin}, by {instance.actor}")
        if first := rows_of.get(instance.uuid):
            words.append(f"it has the rows of {first}")
        reasons[instance.uuid] = "; ".join(words) or None
    return reasons


def one_before(history: Iterable[tuple[str, bool]], uuid: str) -> str | None:
    """The instance to compare with `uuid`. `history` has uuids, oldest first, each with whether the instance was ever live.

    It is the newest earlier instance that was live, because a failed build has nothing to compare; else the newest earlier instance.
    """
    earlier = list(takewhile(lambda found: found[0] != uuid, history))
    were_live = [found for found, was_live in earlier if was_live]
    return next(iter(were_live[-1:] or [found for found, _ in earlier[-1:]]), None)
