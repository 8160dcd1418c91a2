"""The failures behind refs, how many refs wait for their repair, and the command that opens all of them (rule 6.15)."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import msgspec

from databuild_dagster.engine.engine import Engine
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.model.selections import ALL
from databuild_dagster.model.set_aside import cause_of
from databuild_dagster.model.states import InstanceState, JobRunState
from databuild_dagster.model.wording import counted, few_of, one_line, typed
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.store.queries.queries import Queries

#: Failures that are named singly; of more, the command names their assets.
MAX_NAMED = 5
#: Refs of the same cause that a sentence names.
MAX_ALIKE = 2


class FirstFailure(msgspec.Struct, frozen=True):
    """A ref that failed by itself."""

    ref: Ref
    why: str
    #: The number of refs that failed because of it.
    n_waiting: int


class FailedAlike(NamedTuple):
    """Refs of an asset that failed by themselves by the same cause, the reason of the first, and how many failed because of them."""

    refs: tuple[Ref, ...]
    why: str
    n_waiting: int

    @property
    def sentence(self) -> str:
        waiting = f"{counted(self.n_waiting, 'ref')} wait{'s' if self.n_waiting == 1 else ''}"
        is_alone = len(self.refs) == 1
        return (
            f"{few_of(self.refs, MAX_ALIKE)} failed first{'' if is_alone else ' and alike'}, and "
            f"{waiting if self.n_waiting else 'no ref waits'} for {'it' if is_alone else 'them'}: {self.why}"
        )


class FirstFailures(NamedTuple):
    """The failures behind some refs: the earliest failures, and the number of the rest."""

    named: tuple[FirstFailure, ...]
    #: The named failures by their cause.
    alike: tuple[FailedAlike, ...]
    n_others: int
    #: The command that opens them and all that waits for them.
    command: str

    @property
    def sentences(self) -> list[str]:
        return self.beside(())

    def beside(self, shown: Collection[Ref]) -> list[str]:
        """The sentences without those that say no more than a table of the `shown` refs with their reasons."""
        news = [alike.sentence for alike in self.alike if alike.n_waiting or not set(alike.refs).issubset(shown)]
        others = [f"{self.n_others} more refs failed by themselves."] if self.n_others else []
        repaired = "Once that is repaired, this opens all of it"
        return [*news, *others, f"{repaired}: {self.command}"]


def first_failures(engine: Engine, refs: Collection[Ref]) -> FirstFailures | None:
    """The failures behind the failed refs among `refs`; None when no ref failed."""
    found = engine.queries.canonical.failed_first_behind(refs) if refs else []
    if not found:
        return None
    waiting = engine.queries.canonical.failed_upstream_of
    named = [(ref, one_line(why or "its build failed")) for ref, why in found[:MAX_NAMED]]
    by_cause: dict[tuple[str, str], list[tuple[Ref, str]]] = {}
    for ref, why in named:
        by_cause.setdefault((asset_of(ref), cause_of(why, ref)), []).append((ref, why))
    groups = [(tuple(ref for ref, _ in group), group[0][1]) for group in by_cause.values()]
    return FirstFailures(
        tuple(FirstFailure(ref, why, len(waiting([ref]))) for ref, why in named),
        tuple(FailedAlike(refs, why, len(waiting(refs))) for refs, why in groups),
        len(found) - len(named),
        _command(engine, [ref for ref, _ in found]),
    )


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
