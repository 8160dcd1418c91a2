"""Where the boxes and lines of a graph of instances are: a column for each level, by ref from top to bottom."""

from typing import Any, Final, NamedTuple

BOX_WIDTH: Final = 250
BOX_HEIGHT: Final = 34
COLUMN: Final = 320
ROW: Final = 44
MARGIN: Final = 10
#: Boxes of one column, and letters of a ref in a box.
MAX_ROWS: Final = 40
MAX_LETTERS: Final = 30


class Box(NamedTuple):
    """An instance with the place of its upper left corner."""

    node: dict[str, Any]
    x: int
    y: int

    @property
    def text(self) -> str:
        ref = self.node["ref"]
        half = (MAX_LETTERS - 1) // 2
        return ref if len(ref) <= MAX_LETTERS else f"{ref[:half]}…{ref[-half:]}"


class Drawing(NamedTuple):
    """Boxes, and the curves between them as SVG has them."""

    width: int
    height: int
    boxes: list[Box]
    lines: list[str]
    #: Instances that have no place.
    n_left_out: int


def drawn(graph: dict[str, Any]) -> Drawing:
    """The places of a graph's instances."""
    columns: dict[int, list[dict[str, Any]]] = {}
    for node in graph["nodes"]:
        columns.setdefault(node["level"], []).append(node)
    rows = min(max(map(len, columns.values())), MAX_ROWS)
    boxes: dict[str, Box] = {}
    for place, level in enumerate(sorted(columns)):
        shown = sorted(columns[level], key=lambda node: node["ref"])[:MAX_ROWS]
        top = MARGIN + (rows - len(shown)) * ROW // 2
        for row, node in enumerate(shown):
            boxes[node["uuid"]] = Box(node, MARGIN + place * COLUMN, top + row * ROW)
    lines = [
        _line(boxes[edge["input"]], boxes[edge["output"]])
        for edge in graph["edges"]
        if edge["input"] in boxes and edge["output"] in boxes
    ]
    width = (len(columns) - 1) * COLUMN + BOX_WIDTH + 2 * MARGIN
    height = rows * ROW + 2 * MARGIN
    return Drawing(width, height, list(boxes.values()), lines, len(graph["nodes"]) - len(boxes))


def _line(first: Box, second: Box) -> str:
    x1, y1 = first.x + BOX_WIDTH, first.y + BOX_HEIGHT // 2
    x2, y2 = second.x, second.y + BOX_HEIGHT // 2
    middle = (x1 + x2) // 2
    return f"M{x1} {y1}C{middle} {y1} {middle} {y2} {x2} {y2}"
