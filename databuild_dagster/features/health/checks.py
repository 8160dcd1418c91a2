"""The checks of a deployment, each with one sentence (rule 11.8).

| check | it fails, and the rest is unknown | it warns |
|---|---|---|
| `log` | the log cannot be read within the bound | |
| `schema` | another version of the package wrote its tables | |
| `history` | it lacks an event that was seen (rule 3.13) | |
| `orchestrators` | | wants are open that no orchestrator builds |
| `versions` | | hosts have different versions |
| `outages` | | launches wait for Spark or the warehouse |
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.orchestrator_notes import RESTART_SECONDS, absence_of, code_at_work
from databuild_dagster.engine.outages import in_words, outages
from databuild_dagster.engine.why.orchestrators import differing_versions
from databuild_dagster.model.set_aside import Subject
from databuild_dagster.model.wording import counted
from databuild_dagster.store.errors import NewerStore, OlderProjection, StoreReplaced, StoreSilent
from databuild_dagster.store.queries.wants import WantFilter


class Status(StrEnum):
    """How a check ends, and the whole: as its worst check."""

    #: All is right.
    OK = "ok"
    #: Another check failed, so that it was not made.
    UNKNOWN = "unknown"
    #: A person has something to do; this process can do its work.
    WARNING = "warning"
    #: This process cannot use the log.
    FAILED = "failed"


class Finding(msgspec.Struct, frozen=True):
    """A check that was made, and one sentence or more about it."""

    check: str
    status: Status
    says: str


class Health(msgspec.Struct, frozen=True):
    """The health of a deployment: the status of its worst check, and each check."""

    status: Status
    checks: Sequence[Finding]


class SlowStore(StoreSilent):
    """The build state has not answered within {seconds:g} s."""

    hint = "Its server is away, or busy: `databuild status` waits longer, and says more."


def worst(findings: Collection[Finding]) -> Status:
    return max((finding.status for finding in findings), key=list(Status).index)


#: By code location, the assets that it builds.
_Built = Mapping[str, Sequence[str]]

#: By check, the errors by which the check fails; the check `log` fails by all other errors.
_FAILING: Final = {"log": (), "schema": (NewerStore, OlderProjection), "history": (StoreReplaced,)}


def look(engine: Engine, only: Collection[str] = ()) -> list[Finding]:
    """The findings of all checks, or of the chosen ones. Raises the error of a check that fails.

    The first three are one question to the log, which every look asks.
    """
    seq = engine.store.look().seq
    found = [
        Finding("log", Status.OK, f"The log can be read, and has {counted(seq, 'event')}."),
        Finding("schema", Status.OK, "Its tables have the version of this package."),
        Finding("history", Status.OK, "It has every event that was seen."),
    ]
    built = _built(engine)
    found += [_warned(name, says(engine, built)) for name, says in _WARNING.items() if not only or name in only]
    return [finding for finding in found if not only or finding.check in only]


def failed(error: Exception, says: str) -> list[Finding]:
    """The findings after an error: one check fails by the error, and all other checks are unknown."""
    check = next((name for name, kinds in _FAILING.items() if isinstance(error, kinds)), "log")
    unknown = [Finding(name, Status.UNKNOWN, f"The check {check} failed.") for name in NAMES if name != check]
    return [Finding(check, Status.FAILED, says), *unknown]


def _built(engine: Engine) -> _Built:
    found: dict[str, list[str]] = {}
    for spec in engine.queries.datasets.all().values():
        if spec.kind.is_built:
            found.setdefault(spec.location, []).append(spec.asset)
    return dict(sorted(found.items()))


def _orchestrators(engine: Engine, built: _Built) -> Iterator[tuple[str, bool]]:
    """A location without wants needs no orchestrator."""
    for location, assets in built.items():
        if (absence := absence_of(engine, location)) is None:
            yield f"the orchestrator of {location} ticks", True
        elif any(engine.queries.wants.count(WantFilter(open_only=True, asset=asset), most=1) for asset in assets):
            yield f"wants are open, and {absence.sentence}", False
        else:
            yield f"no orchestrator of {location} ticks, and no want is open there", True


def _versions(engine: Engine, built: _Built) -> Iterator[tuple[str, bool]]:
    """Of processes that were at work in the last ten minutes: those of before a rolling update are forgotten soon."""
    since = engine.clock() - RESTART_SECONDS
    for location in built:
        code = [noted for noted in code_at_work(engine, location) if noted.at >= since]
        if differs := differing_versions(location, code):
            yield differs, False


def _outages(engine: Engine, built: _Built) -> Iterator[tuple[str, bool]]:
    """A person began a hold, so it is no news."""
    for what, aside in outages(engine):
        yield in_words(what, aside), aside.kind is Subject.HOLD


#: Sentences without their full stops, and whether each is as it should be.
_WARNING: Final[dict[str, Callable[[Engine, _Built], Iterator[tuple[str, bool]]]]] = {
    "orchestrators": _orchestrators,
    "versions": _versions,
    "outages": _outages,
}
_ALL_WELL: Final = {
    "orchestrators": "No code location has registered an asset that is built.",
    "versions": "All hosts have the same versions.",
    "outages": "Nothing is out of reach.",
}
NAMES: Final = (*_FAILING, *_WARNING)


def _warned(check: str, found: Iterator[tuple[str, bool]]) -> Finding:
    said = list(found)
    is_well = all(right for _, right in said)
    says = " ".join(f"{sentence[0].upper()}{sentence[1:]}." for sentence, right in said if is_well or not right)
    return Finding(check, Status.OK if is_well else Status.WARNING, says or _ALL_WELL[check])
