"""Causes that differ only in names and times are a single line, so that an answer about thousands of refs can be read.

The lines are for people: a ref has its sentence in full, and the line below it names the other refs that have the same cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from typing import NamedTuple

from databuild_dagster.engine.why.explain import LEFT_OUT, Cause
from databuild_dagster.model.refs import Ref, asset_of, partition_key_of
from databuild_dagster.model.wording import few_of

#: Refs that a line names.
NAMED = 3
#: Ids, times, the keys of refs and the numbers of refs that a sentence leaves out.
_NAMES = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)?"
    r"|(?<=\w)@[^\s,;:`)]+"
    r"|\band \d+ more\b"
)


class AlikeCauses(NamedTuple):
    """Refs whose causes differ only in names and times. Their own causes follow, a level deeper."""

    #: In their order; none where the sentences are about refs that are left out.
    refs: list[str]
    #: The sentences of the first ref.
    sentences: list[str]
    #: Whether the other refs have the very same sentences.
    is_same: bool
    depth: int


@dataclass
class _Step:
    """A ref with all its sentences, and the refs that are its cause."""

    ref: str
    sentences: list[str]
    because_of: list[_Step] = field(default_factory=list)

    @property
    def why(self) -> str:
        return "; ".join(self.sentences)

    @property
    def likeness(self) -> tuple[object, ...]:
        """Equal for steps that differ only in names and times."""
        # An id of a want is no asset.
        asset = _NAMES.sub("@", asset_of(Ref(self.ref)))
        return asset, likeness_of(self.ref, self.why), frozenset(step.likeness for step in self.because_of)


def likeness_of(ref: str, why: str) -> str:
    """A sentence about a ref without names and times: equal for sentences that are alike."""
    # Ids first, for a short key may be a part of one.
    masked = _NAMES.sub("@", why)
    key = partition_key_of(Ref(ref))
    return re.sub(rf"(?<!\w){re.escape(key)}(?!\w)", "@", masked) if key else masked


def lines_of(causes: Iterable[Cause]) -> Iterator[tuple[int, str]]:
    """The depth and the text of each line."""
    for found in alike_causes(causes):
        why = "; ".join(found.sentences)
        if not found.refs:
            yield found.depth, why
        elif found.is_same:
            yield found.depth, f"{few_of(found.refs, NAMED)}: {why}"
        else:
            yield found.depth, f"{found.refs[0]}: {why}"
            yield found.depth, f"and likewise {few_of(found.refs[1:], NAMED)}"


def alike_causes(causes: Iterable[Cause]) -> Iterator[AlikeCauses]:
    """Causes, each with the causes that are like it."""
    return _alike(_steps(causes), 0)


def _steps(causes: Iterable[Cause]) -> list[_Step]:
    """The causes as a tree."""
    first: list[_Step] = []
    # By depth: the list that the next step joins.
    lists = [first]
    for (ref, depth), of_ref in groupby(causes, key=lambda cause: (cause.ref, cause.depth)):
        step = _Step(ref, [cause.why for cause in of_ref])
        lists[depth].append(step)
        lists[depth + 1 :] = [step.because_of]
    return first


def _alike(steps: Sequence[_Step], depth: int) -> Iterator[AlikeCauses]:
    alike: dict[tuple[object, ...], list[_Step]] = {}
    for step in steps:
        alike.setdefault(step.likeness, []).append(step)
    for same in alike.values():
        first = same[0]
        refs = [] if first.why.startswith(LEFT_OUT) else [step.ref for step in same]
        yield AlikeCauses(refs, first.sentences, len({step.why for step in same}) == 1, depth)
        yield from _alike(list(chain.from_iterable(step.because_of for step in same)), depth + 1)
