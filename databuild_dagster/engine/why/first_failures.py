"""The failures behind refs, how many refs wait for their repair, and the command that opens all of them (rule 6.15)."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import msgspec

from databuild_dagster.engine.engine import Engine
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.model.selections import ALL
from databuild_dagster.model.states import InstanceState, JobRunState
from databuild_dagster.model.wording import counted, one_line, typed
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.store.queries.queries import Queries

#: Failures that are named singly; of more, the command names their assets.
MAX_NAMED = 5


class FirstFailure(msgspec.Struct, frozen=True):
    """A ref that failed by itself."""

    ref: Ref
    why: str
    #: The number of refs that failed because of it.
    n_waiting: int

    @property
    def sentence(self) -> str:
        wait = (
            f"{counted(self.n_waiting, 'ref')} wait{'s' if self.n_waiting == 1 else ''}"
            if self.n_waiting
            else "no ref waits"
        )
        return f"{self.ref} failed first, and {wait} for it: {self.why}"


class FirstFailures(NamedTuple):
    """The failures behind some refs: the earliest failures, and the number of the rest."""

    named: tuple[FirstFailure, ...]
    n_others: int
    #: The command that opens them and all that waits for them.
    command: str

    @property
    def sentences(self) -> list[str]:
        others = [f"{self.n_others} more refs failed by themselves."] if self.n_others else []
        repaired = "Once that is repaired, this opens all of it"
        return [*(failure.sentence for failure in self.named), *others, f"{repaired}: {self.command}"]


def first_failures(engine: Engine, refs: Collection[Ref]) -> FirstFailures | None:
    """The failures behind the failed refs among `refs`; None when no ref failed."""
    found = engine.queries.canonical.failed_first_behind(refs) if refs else []
    if not found:
        return None
    named = tuple(
        FirstFailure(ref, one_line(why or "its build failed"), len(engine.queries.canonical.failed_upstream_of([ref])))
        for ref, why in found[:MAX_NAMED]
    )
    n_others = len(found) - len(named)
    return FirstFailures(named, n_others, _command(engine, [ref for ref, _ in found]))


def _command(engine: Engine, causes: list[Ref]) -> str:
    if len(causes) <= MAX_NAMED:
        return f"databuild retry {typed(*causes)}"
    selections = dict.fromkeys(_all_of_asset(engine, ref) for ref in causes)
    return f"databuild retry --only failed {typed(*selections)}"


def _all_of_asset(engine: Engine, ref: Ref) -> str:
    """The selection of all partitions; the ref alone if the asset has no partitions, or if `*` is a key."""
    asset = asset_of(ref)
    spec = engine.queries.datasets.get(asset)
    takes_all = asset != ref and spec is not None and engine.catalog.why_not(spec, ALL) is not None
    return f"{asset}@{ALL}" if takes_all else ref


def damaged_inputs(engine: Engine, serving: Sequence[Ref]) -> list[str]:
    """A sentence for each of the refs, and of what they wait for, that only the repair of a lost or damaged input makes live (rule 6.16).

    None if a further ref is to be retried, or if the damaged input was built again.
    """
    queries = engine.queries
    needed = [need.ref for need in queries.planning.waited_for(serving, engine.now())]
    found = queries.canonical.of(list(dict.fromkeys((*serving, *needed))))
    retried = [ref for ref in found.values() if ref.state is InstanceState.UP_FOR_RETRY]
    if not all(_waits_for_repair(queries, ref) for ref in retried):
        return []
    return [f"{ref.ref}: {ref.reason}" for ref in retried]


def _waits_for_repair(queries: Queries, ref: Canonical) -> bool:
    run = None if ref.job_run is None else queries.job_runs.get(ref.job_run)
    if run is None or run.state is not JobRunState.DEP_MISSED or not ref.reason or ref.uuid is None:
        return False
    missed = queries.canonical.of(queries.instances.missed([ref.uuid]).get(ref.uuid, ()))
    return all((one.live_at or 0.0) <= (run.ended_at or 0.0) for one in missed.values())
