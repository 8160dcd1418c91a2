"""What became of job runs, on the way from the threads that build to the step that tells."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from databuild_dagster.bindings.claims.claims import HostedRun
from databuild_dagster.bindings.declare.gates import Verdict
from databuild_dagster.model.events import OutputFact
from databuild_dagster.warehouse.manifest import Manifest


@dataclass(frozen=True, slots=True)
class WrittenInstance:
    """What was written for one ref, in the words of its manifest."""

    asset: str
    uuid: str
    state: str
    uri: str
    files: int
    rows: int
    bytes: int
    #: The words themselves.
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class BuiltOutput:
    """One ref's new instance: written, and live when the engine says so."""

    fact: OutputFact
    instance: WrittenInstance
    verdicts: tuple[Verdict, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Built:
    """Every output of the job run is written."""

    run: HostedRun
    outputs: tuple[BuiltOutput, ...]


@dataclass(frozen=True, slots=True)
class Missed:
    """Refs it needs are not live."""

    run: HostedRun
    #: Each output that is held up, to what it misses.
    impacted: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Failed:
    """It raised, or its answer was no answer, or a gate was closed."""

    run: HostedRun
    error: str
    is_transient: bool
    #: For Dagster's log.
    details: str
    #: Output to what its gates said, where it came to that.
    verdicts: Mapping[str, tuple[Verdict, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stopped:
    """It was ended from outside, so nobody waits for its answer."""

    run: HostedRun
    why: str


Result = Built | Missed | Failed | Stopped


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one call of an asset's function came to."""

    results: tuple[Result, ...]
    #: Job runs that are to be called for once more, each of these without the others.
    again: tuple[tuple[HostedRun, ...], ...] = ()
