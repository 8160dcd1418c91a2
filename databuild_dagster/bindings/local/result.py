"""Results as a prompt and a notebook show them: a sentence, a small table, and further sentences."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Generic, NamedTuple, TypeVar

from databuild_dagster.model.wording import counted

T = TypeVar("T")

#: Rows of a table that are shown.
MAX_ROWS = 20
#: Characters of a cell in text.
MAX_CELL = 60


class Screen(NamedTuple):
    """What one screen shows of a result; the columns are shown if there are rows."""

    head: str
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[object]] = ()
    notes: Sequence[str] = ()


class Result:
    """A result with a short `repr`, and a table without scripts in a notebook."""

    def shown(self) -> Screen:
        """What one screen shows of it."""
        raise NotImplementedError

    def __repr__(self) -> str:
        head, columns, rows, notes = self.shown()
        lines = [[_text(cell)[:MAX_CELL] for cell in row] for row in (columns, *rows[:MAX_ROWS])] if rows else []
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
        return "\n".join([head, *table, *_more(rows), *notes])

    def _repr_html_(self) -> str:
        head, columns, rows, notes = self.shown()
        lines = ["".join(f"<td>{escape(_text(cell))}</td>" for cell in row) for row in rows[:MAX_ROWS]]
        titles = "".join(f"<th>{escape(column)}</th>" for column in columns)
        table = "".join(f"<tr>{line}</tr>" for line in (titles, *lines))
        below = escape("\n".join((*_more(rows), *notes)))
        return (
            f"<p>{escape(head)}</p>"
            + (f"<table>{table}</table>" if rows else "")
            + (f"<pre>{below}</pre>" if below else "")
        )


@dataclass(frozen=True, repr=False)
class Answer(Result, Generic[T]):
    """The facts of an answer, and how it is shown."""

    facts: T
    screen: Screen

    def shown(self) -> Screen:
        return self.screen


def _text(cell: object) -> str:
    return "-" if cell is None else str(cell)


def _more(rows: Sequence[object]) -> list[str]:
    more = len(rows) - MAX_ROWS
    return [f"and {counted(more, 'more row')}"] if more > 0 else []
