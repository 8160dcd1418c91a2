"""Side ticks: what a sensor of a feature does in Dagster, done by `databuild build` and `databuild admin tick` after their own tick.

The command line shows a report in the words of the core: ids, outcomes and reasons as text.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from dagster import DagsterInstance

from databuild_dagster.bindings.building.deployment import Deployment


@dataclass(frozen=True)
class SideReport:
    """The results of a side tick, by the id of what it worked on, such as an operation."""

    #: What has ended, and its outcome.
    ended: Mapping[str, str] = field(default_factory=dict)
    #: The ids among them that failed.
    failed: frozenset[str] = frozenset()
    #: What cannot continue here, and why.
    stuck: Mapping[str, str] = field(default_factory=dict)
    #: The number of jobs that no process runs, above 0.
    waiting: Mapping[str, int] = field(default_factory=dict)
    #: Whether a process elsewhere holds something and has given no sign of life yet; after a lease that is known.
    is_unsure: bool = False


@dataclass(frozen=True)
class SideTick:
    """A bounded pass beside the tick of the orchestrator, for a code location."""

    #: A noun: "operations".
    name: str
    tick: Callable[[DagsterInstance, Deployment], SideReport]
