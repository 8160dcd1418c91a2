"""Where the boxes and lines of a graph of instances are: inputs above, consumers below, the levels under one another.

The width has a bound, so no box is cut at the right, however deep the graph is. Alike instances of a level share a box: those of
one asset in the same state, of which there are more than `MAX_APART`.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from databuild_dagster.model.refs import asset_of

BOX_WIDTH: Final = 250
BOX_HEIGHT: Final = 46
COLUMN: Final = 266
ROW: Final = 56
#: Between two levels.
LEVEL: Final = 92
MARGIN: Final = 10
#: Boxes of a line, lines of a level, and letters of a name in a box.
PER_LINE: Final = 5
MAX_LINES: Final = 10
MAX_LETTERS: Final = 28
#: Alike instances that have a box each.
MAX_APART: Final = 3


class Box(NamedTuple):
    """An instance, or alike instances, with the place of the upper left corner."""

    #: By ref.
    nodes: list[dict[str, Any]]
    x: int
    y: int

    @property
    def node(self) -> dict[str, Any]:
        """The first instance, whose state all of them have."""
        return self.nodes[0]

    @property
    def asset(self) -> str:
        return asset_of(self.node["ref"])

    @property
    def name(self) -> str:
        """The ref, or the number of instances of an asset."""
        n = len(self.nodes)
        return str(self.node["ref"]) if n == 1 else f"{n:,} × {self.asset}"

    @property
    def text(self) -> str:
        name = self.name
        half = (MAX_LETTERS - 1) // 2
        return name if len(name) <= MAX_LETTERS else f"{name[:half]}…{name[-half:]}"


class Drawing(NamedTuple):
    """Boxes, and the curves between them as SVG has them."""

    width: int
    height: int
    boxes: list[Box]
    lines: list[str]
    #: Instances that have no place.
    n_left_out: int
    #: The levels that the graph has on its deeper side.
    depth: int


def drawn(graph: dict[str, Any], unfold: str | None = None) -> Drawing:
    """The places of a graph's instances; those of the asset `unfold` have a box each."""
    levels: dict[int, list[list[dict[str, Any]]]] = {}
    for nodes in _folded(graph, unfold):
        levels.setdefault(nodes[0]["level"], []).append(nodes)
    per_line = min(max(map(len, levels.values())), PER_LINE)
    top, boxes = MARGIN, list[Box]()
    for level in sorted(levels):
        shown = levels[level][: PER_LINE * MAX_LINES]
        for first in range(0, len(shown), PER_LINE):
            of_line = shown[first : first + PER_LINE]
            left = MARGIN + (per_line - len(of_line)) * COLUMN // 2
            boxes += [Box(nodes, left + place * COLUMN, top) for place, nodes in enumerate(of_line)]
            top += ROW
        top += LEVEL - ROW
    box_of = {node["uuid"]: box for box in boxes for node in box.nodes}
    pairs = {
        (id(box_of[edge["input"]]), id(box_of[edge["output"]])): edge
        for edge in graph["edges"]
        if edge["input"] in box_of and edge["output"] in box_of
    }
    lines = [_line(box_of[edge["input"]], box_of[edge["output"]]) for edge in pairs.values()]
    width, height = (per_line - 1) * COLUMN + BOX_WIDTH + 2 * MARGIN, top - (LEVEL - BOX_HEIGHT) + MARGIN
    depth = max(abs(level) for level in levels)
    return Drawing(width, height, boxes, lines, len(graph["nodes"]) - len(box_of), depth)


def _folded(graph: dict[str, Any], unfold: str | None) -> list[list[dict[str, Any]]]:
    """The instances of each box, by ref."""
    alike: dict[tuple[object, ...], list[dict[str, Any]]] = {}
    for node in sorted(graph["nodes"], key=lambda node: node["ref"]):
        alike.setdefault((node["level"], asset_of(node["ref"]), node["state"], node["canonical"]), []).append(node)
    found: list[list[dict[str, Any]]] = []
    for nodes in alike.values():
        is_apart = len(nodes) <= MAX_APART or asset_of(nodes[0]["ref"]) == unfold or nodes[0]["level"] == 0
        found += [[node] for node in nodes] if is_apart else [nodes]
    return sorted(found, key=_first_ref)


def _first_ref(nodes: Sequence[dict[str, Any]]) -> str:
    return str(nodes[0]["ref"])


def _line(first: Box, second: Box) -> str:
    x1, y1 = first.x + BOX_WIDTH // 2, first.y + BOX_HEIGHT
    x2, y2 = second.x + BOX_WIDTH // 2, second.y
    middle = (y1 + y2) // 2
    return f"M{x1} {y1}C{x1} {middle} {x2} {middle} {x2} {y2}"
