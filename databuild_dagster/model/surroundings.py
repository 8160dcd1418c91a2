"""The needs of a build besides its inputs, and whose fault a failure is (rules 6.17, 6.18).

A failure that is not the partition's own does not count against it, as long as that may be believed: after so many in a row, it
counts like any other. So no build is retried without end.
"""

from enum import StrEnum
from typing import Final

#: Failures of the surroundings in a row that do not count as attempts of a ref, and losses in a row after which it fails.
MAX_OUTAGES: Final = 3
MAX_LOSSES: Final = 20
#: Refs that were lost together are launched again in so many parts, so that a ref that kills its process is soon alone.
PARTS_AFTER_LOSS: Final = 4


class Surrounding(StrEnum):
    """The owner of a failure that is not the partition's own."""

    SPARK = "spark"
    #: The disk or the object store of the data.
    WAREHOUSE = "warehouse"
    #: The database of the wants and builds. It is patient by itself, so its failure needs no probe.
    STATE = "build state"
    #: The process that built it, or its host.
    PROCESS = "process"

    @property
    def in_words(self) -> str:
        return "Spark" if self is Surrounding.SPARK else f"the {self.value}"


#: Surroundings that a probe can find out of reach (rule 6.17).
PROBED: Final[tuple[Surrounding, ...]] = (Surrounding.SPARK, Surrounding.WAREHOUSE)


class Fate(StrEnum):
    """How a launch ended that did not report."""

    #: Dagster recorded an error of the run, such as that of a resource.
    RAISED = "raised"
    #: The process ended by itself: a signal of its own, or an exit code.
    CRASHED = "crashed"
    #: It was stopped from outside, also by the kernel for want of memory, its host is gone, or nobody knows.
    KILLED = "killed"


#: By the fate of a launch, and by whether it had a single job run: whether the loss counts as an attempt (rule 6.18).
LOSS_COUNTS: Final = {
    (Fate.RAISED, True): True,
    (Fate.RAISED, False): True,
    (Fate.CRASHED, True): True,
    # Any of them may have ended the process.
    (Fate.CRASHED, False): False,
    (Fate.KILLED, True): False,
    (Fate.KILLED, False): False,
}
