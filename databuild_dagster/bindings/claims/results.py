"""The results of job runs, passed from the building threads to the step that reports them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from databuild_dagster.bindings.declare.build_context import HostedRun
from databuild_dagster.bindings.declare.gates import Verdict
from databuild_dagster.model.events import OutputFact
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.surroundings import Surrounding
from databuild_dagster.warehouse.manifest import Manifest


@dataclass(frozen=True, slots=True)
class BuiltOutput:
    """The new instance of a ref. It is written; the engine makes it live."""

    fact: OutputFact
    manifest: Manifest
    #: The place of the manifest.
    uri: str
    verdicts: tuple[Verdict, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Built:
    """Every output of the job run is written."""

    run: HostedRun
    outputs: tuple[BuiltOutput, ...]


@dataclass(frozen=True, slots=True)
class Missed:
    """The job run needs refs that are not live, or whose files are lost or damaged."""

    run: HostedRun
    #: Output to the refs that it misses.
    impacted: Mapping[Ref, tuple[Ref, ...]]
    #: The lost or damaged files in words, with the commands that repair them; empty if the refs are not live.
    damage: str = ""


@dataclass(frozen=True, slots=True)
class Failed:
    """The function raised, returned no valid result, or a gate did not pass."""

    run: HostedRun
    error: str
    is_transient: bool
    #: For Dagster's log.
    details: str
    #: Output to the verdicts of its gates, if they ran.
    verdicts: Mapping[Ref, tuple[Verdict, ...]] = field(default_factory=dict)
    #: What was found out of reach, and why, if it is not the partition's own failure.
    owner: Surrounding | None = None
    why_out_of_reach: str = ""
    #: The error that the function raised; `materialize()` and Dagster's page of the step show it.
    cause: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Stopped:
    """The job run was ended from outside, so its result is not used."""

    run: HostedRun
    why: str


Result = Built | Missed | Failed | Stopped


@dataclass(frozen=True, slots=True)
class Attempt:
    """The outcome of a call of an asset's function."""

    results: tuple[Result, ...]
    #: Groups of job runs that need a further call, one call per group.
    again: tuple[tuple[HostedRun, ...], ...] = ()
    #: Publishes more job runs of the same call, which are finished but for their manifests.
    rest: Callable[[], Attempt] | None = None
