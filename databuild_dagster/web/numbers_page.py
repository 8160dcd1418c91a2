"""The page of an asset's numbers: a chart over its partitions, in which a day with half its rows is seen at once.

A chart has `MAX_POINTS` points. A point of several partitions keeps the least and the greatest number among them, so that a single
wrong partition is seen among a hundred thousand. A number is unlike its neighbors by its ratio to their median.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any, Final, NamedTuple

import msgspec

from databuild_dagster.calls.calendar_keys import keys_of
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.errors import InvalidRequest
from databuild_dagster.model.refs import Ref, make_ref
from databuild_dagster.store.queries.canonical import NUMBERS
from databuild_dagster.web.parameters import text
from databuild_dagster.web.routes import ApiRoute, Ask, Page, parameters_of
from databuild_dagster.web.state import State

#: Points of a chart, and numbers that are named because they are unlike their neighbors.
MAX_POINTS: Final = 240
MAX_UNLIKE: Final = 10
#: The neighbors on each side with which a number is compared, the fewest that say something, and the ratio that is unlike them.
NEIGHBORS: Final = 7
MIN_NEIGHBORS: Final = 4
UNLIKE: Final = 1.6
_ROWS: Final = "rows"
#: The drawing, in its own units.
WIDTH: Final = 960
HEIGHT: Final = 200


class Point(msgspec.Struct, frozen=True):
    """One partition or several consecutive partitions; `least`, `median` and `most` are null if no partition has the number."""

    first: Ref
    last: Ref
    n: int
    least: float | None
    median: float | None
    most: float | None
    #: Whether the number of any of them is listed as unlike its neighbors.
    is_unlike: bool


class Unlike(msgspec.Struct, frozen=True):
    """A number that is unlike the numbers of the partitions around it, and their median."""

    ref: Ref
    number: float
    usual: float


class Numbers(msgspec.Struct, frozen=True):
    """A number of the partitions of a dataset in the order of its definition: `n_known` of `n` have it."""

    dataset: str
    value: str
    #: The numbers that can be asked for: the package's, and those of the author's metadata.
    names: list[str]
    n: int
    n_known: int
    least: float | None
    median: float | None
    most: float | None
    points: list[Point]
    #: The most unlike first.
    unlike: list[Unlike]


def numbers(state: State, dataset: str, value: str | None, within: str | None) -> Numbers:
    """A number of the partitions of a dataset; of a large one, counted two minutes ago at most."""
    spec, name = state.engine.queries.datasets.known(dataset), value or _ROWS
    if name not in NUMBERS and name not in (names := state.engine.queries.canonical.recorded_numbers(dataset)):
        known = ", ".join([*NUMBERS, *names])
        raise InvalidRequest(what="value", value=name, why=f"the newest partitions of {dataset} have {known}")
    if within:
        return _numbers(state, spec, name, within)
    return state.kept(f"numbers of {spec.asset}: {name}", lambda: _numbers(state, spec, name, ""))


def _numbers(state: State, spec: DatasetSpec, name: str, within: str) -> Numbers:
    keys = [key for key in keys_of(spec, state.instance, state.engine.clock()) if (key or "").startswith(within)]
    found = state.engine.queries.canonical.numbers(spec.asset, name)
    refs = [make_ref(spec.asset, key) for key in keys]
    known = [(ref, found[ref]) for ref in refs if ref in found]
    unlike = unlike_in(known)
    odd = {one.ref for one in unlike}
    at_once = -(-len(refs) // MAX_POINTS) or 1
    parts = [refs[first : first + at_once] for first in range(0, len(refs), at_once)]
    points = [
        Point(
            part[0],
            part[-1],
            len(part),
            *_spread([found[ref] for ref in part if ref in found]),
            not odd.isdisjoint(part),
        )
        for part in parts
    ]
    names = [*NUMBERS, *state.engine.queries.canonical.recorded_numbers(spec.asset)]
    spread = _spread([number for _, number in known])
    return Numbers(spec.asset, name, names, len(refs), len(known), *spread, points, unlike)


def _spread(values: Sequence[float]) -> tuple[float | None, float | None, float | None]:
    return (min(values), median(values), max(values)) if values else (None, None, None)


def unlike_in(known: Sequence[tuple[Ref, float]]) -> list[Unlike]:
    """The numbers that are most unlike the numbers around them, the most unlike first."""
    values = [number for _, number in known]
    found: list[tuple[float, Unlike]] = []
    for place, (ref, number) in enumerate(known):
        around = values[max(place - NEIGHBORS, 0) : place] + values[place + 1 : place + 1 + NEIGHBORS]
        if len(around) < MIN_NEIGHBORS:
            continue
        usual = median(around)
        ratio = max(number, usual) / max(min(number, usual), 1e-9) if usual > 0 else 1.0
        if ratio >= UNLIKE:
            found.append((ratio, Unlike(ref, number, usual)))
    return [one for _, one in sorted(found, key=lambda pair: -pair[0])[:MAX_UNLIKE]]


class Column(NamedTuple):
    """A point of the chart: from `low` to `high` its numbers differ. Places are in the units of the drawing, from its top."""

    point: dict[str, Any]
    x: float
    width: float
    high: float
    low: float


def drawn(found: dict[str, Any]) -> list[Column]:
    """The columns of a chart, which begins at zero, or at the least number below it."""
    points = found["points"]
    step = WIDTH / max(len(points), 1)
    columns: list[Column] = []
    for place, point in enumerate(points):
        if point["most"] is None:
            continue
        high, low = (_height(found, point[end]) for end in ("most", "least"))
        columns.append(Column(point, place * step, max(step - 1.0, step * 0.8), high, low))
    return columns


def _height(found: dict[str, Any], number: float) -> float:
    bottom: float = min(found["least"], 0)
    top: float = max(found["most"], 0)
    return HEIGHT * (top - number) / (top - bottom or 1)


ROUTES: Final = (
    ApiRoute(
        "/numbers",
        "A number of the partitions of a dataset, in the order of its definition.",
        numbers,
        Numbers,
        (
            text("dataset", "The name of the asset.", required=True),
            text(
                "value",
                "The number: rows, which is the default, bytes, files, seconds, or one of the author's metadata.",
            ),
            text("within", "Only partitions whose keys begin so, such as 2024-01."),
        ),
    ),
)


def _show(ask: Ask, values: dict[str, Any]) -> dict[str, Any]:
    found = ask("numbers", **values)
    middle = None if not found["most"] else _height(found, found["median"])
    return {
        "values": values,
        "found": found,
        "columns": drawn(found),
        "middle": middle,
        "drawing": (WIDTH, HEIGHT),
    }


PAGE: Final = Page("/numbers", "numbers.html", _show, parameters_of(ROUTES, "/numbers"), below="/assets")
