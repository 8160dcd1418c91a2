"""The subjects that a tick or an arrival sensor can set aside, and when two reasons are the same (rule 11.7)."""

import re
from enum import StrEnum
from typing import Final

from databuild_dagster.model.refs import Ref, partition_key_of
from databuild_dagster.model.selections import DIMENSIONS


class Subject(StrEnum):
    """The kind of a subject."""

    REF = "ref"
    ARC = "arc"
    LAUNCH = "launch"
    #: It is overdue.
    WANT = "want"
    #: The data of a lost job run.
    JOB_RUN = "job run"
    #: A question about many refs or launches at once.
    QUESTION = "question"
    #: A boundary's, whose files cannot be recorded, under its ref.
    LOT = "lot"
    #: In a landing folder, for no lot.
    FILE = "file"
    #: The table that a dataset is published as.
    TABLE = "table"
    #: Spark or the warehouse of a location, which its launches need: a probe found it out of reach, or a person holds it (rule 6.17).
    OUTAGE = "outage"
    HOLD = "hold"


#: Letters of a cause; more would make an index large.
MAX_CAUSE: Final = 200
#: The path of a file, or a url.
_PATH = re.compile(r"""(?:\b\w+:/|(?<![\w.])|\b[A-Za-z]:)[/\\][^\s'"`,;()\[\]]+""")
#: Addresses, uuids and numbers, which may differ each time that the same code raises.
_UNSTEADY = re.compile(r"0x[0-9a-fA-F]+|\b[0-9a-fA-F-]{16,}\b|[0-9]+")


def same_reason(one: str | None, other: str | None) -> bool:
    """Whether two reasons differ in nothing but addresses, uuids and numbers."""
    if one is None or other is None or one == other:
        return one == other
    return steady(one) == steady(other)


def steady(reason: str) -> str:
    """A reason without addresses, uuids and numbers: the same for all subjects of the same cause."""
    return _UNSTEADY.sub("#", reason)


def cause_of(reason: str, ref: Ref) -> str:
    """The reason why a ref failed, the same for all refs that failed by the same cause (rule 6.15).

    Without paths, addresses, uuids, numbers and the ref's own partition key, and no longer than `MAX_CAUSE`.
    """
    text = reason
    for part in (partition_key_of(ref) or "").split(DIMENSIONS):
        if part:
            text = re.sub(rf"(?<!\w){re.escape(part)}(?!\w)", "#", text)
    return steady(_PATH.sub("#", text))[:MAX_CAUSE]


def subject_of(location: str, kind: str, name: str) -> str:
    """The key of a subject. No part of it has a line break."""
    return f"{kind}\n{location}\n{name}"
