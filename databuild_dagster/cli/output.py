"""Values for people, as a table or a sentence, and for programs, as JSON."""

import json
import re
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import click

from databuild_dagster.engine.wording import json_of
from databuild_dagster.model.records import CUT, Column
from databuild_dagster.model.wording import SHORT_ID, few_of, state_in_words

#: Characters of a table's line, and between two of its columns; --wide lifts the first.
MAX_WIDTH = 100
GAP = 2
#: A column that is narrowed keeps so many characters, one of sentences at first more; so this many columns fit.
MIN_WIDTH = 8
MIN_SENTENCE = 20
MAX_COLUMNS = (MAX_WIDTH + GAP) // (MIN_WIDTH + GAP)
#: Where `options.tabular` puts --wide in click's context.
WIDE = "databuild.wide"
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ID = re.compile(rf"-|[0-9a-f]{{8}}|[0-9a-f]{{12}}|{_UUID.pattern}")
#: Lengths of ids in a table; the shortest that tells all of them apart is used.
_LENGTHS = (SHORT_ID, 12, 36)

#: The color of a state, the same wherever it is shown.
STYLES = {
    "live": "green",
    "successful": "green",
    "succeeded": "green",
    "building": "cyan",
    "running": "cyan",
    "queued": "cyan",
    "upstream building": "blue",
    "up for retry": "yellow",
    "tainted": "magenta",
    "dep missed": "yellow",
    "failed": "red",
    "upstream failed": "red",
    "lost": "red",
}


def emit(value: Any) -> None:
    """Print a JSON value on stdout."""
    click.echo(json.dumps(json_of(value), default=str))


def answer(value: Any, sentence: str, *, as_json: bool) -> None:
    """The value as JSON for a program, or the sentence for a person."""
    emit(value) if as_json else click.echo(sentence)


def listing(records: Sequence[Any], columns: Sequence[Column], *, empty: str, as_json: bool = False) -> None:
    """Print records as JSON, or as a table of the fields that the columns name."""
    if as_json:
        emit(records)
        return
    is_wide = shows_wide()
    rows = [[_cell(column, record, is_wide=is_wide) for column in columns] for record in json_of(records)]
    hidden = [column.title for column in columns if column.wide_only]
    table([column.title for column in columns], rows, empty=empty, wide_only=hidden)
    if any(isinstance(cell, str) and cell.endswith(CUT) for row in rows for cell in row):
        click.echo(f"A text that ends with {CUT} is longer; --wide and --json show all of it.")


def _cell(column: Column, record: Mapping[str, Any], *, is_wide: bool) -> Any:
    value = record[column.field or column.title.replace(" ", "_")]
    if value is None:
        return column.none
    if (text := column.text if is_wide or column.narrow is None else column.narrow) is not None:
        return text(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) if is_wide else shown(value)
    return " ".join(value.split()) if is_wide and isinstance(value, str) else value


def shows_wide() -> bool:
    """The command was called with --wide."""
    context = click.get_current_context(silent=True)
    return context is not None and context.meta.get(WIDE, False)


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    empty: str,
    wide_only: Collection[str] = (),
    of_ours: bool = True,
) -> None:
    """Print a table of at most 100 columns of text; states have their colors on a terminal.

    States are in words. The columns of `wide_only` are left out, ids and long words shortened, and long sentences folded. With
    --wide nothing is.
    """
    listed = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    if of_ours and "state" in columns:
        place = columns.index("state")
        listed = [[*row[:place], state_in_words(row[place]), *row[place + 1 :]] for row in listed]
    if not listed:
        click.echo(empty)
        return
    is_wide = shows_wide()
    if of_ours and not is_wide:
        listed = _with_short_ids(listed)
    shown_columns = [i for i, name in enumerate(columns) if is_wide or name not in wide_only]
    n_hidden = 0
    if not is_wide:
        n_hidden = len(shown_columns) - MAX_COLUMNS
        shown_columns = shown_columns[:MAX_COLUMNS]
    cells = [[row[i] for i in shown_columns] for row in ([*columns], *listed)]
    by_column = list(zip(*cells, strict=True))
    widths = [max(map(len, column)) for column in by_column] if is_wide else _narrowed(by_column)
    for number, row in enumerate(cells):
        styles = [{"bold": True} if number == 0 else {"fg": STYLES.get(cell)} for cell in row]
        for line in zip_longest(*(_fold(cell, width) for cell, width in zip(row, widths, strict=True)), fillvalue=""):
            n_filled = max((i for i, text in enumerate(line, 1) if text), default=0)
            texts = [text.ljust(width) for text, width in zip(line[: n_filled - 1], widths, strict=False)]
            texts += line[n_filled - 1 : n_filled]
            click.echo((" " * GAP).join(click.style(text, **style) for text, style in zip(texts, styles, strict=False)))
    if n_hidden > 0:
        click.echo(f"and {count(n_hidden, 'more column')}; --wide shows all.")


def _with_short_ids(rows: list[list[str]]) -> list[list[str]]:
    """Cells that are ids become their ends, as long as all ids of the table need to differ (rule 2.3)."""
    ids = {cell for row in rows for cell in row if _UUID.fullmatch(cell)}
    length = next(length for length in _LENGTHS if len({id[-length:] for id in ids}) == len(ids))
    return [[cell[-length:] if cell in ids else cell for cell in row] for row in rows]


def _narrowed(columns: Sequence[Sequence[str]]) -> list[int]:
    """The width of each column: sentences are narrowed first, then words, and full ids only where nothing else helps."""
    widths = [max(map(len, column)) for column in columns]
    room = MAX_WIDTH - GAP * (len(widths) - 1)
    are_sentences = [any(" " in cell for cell in column[1:]) for column in columns]
    are_ids = [all(map(_ID.fullmatch, column[1:])) for column in columns]
    stages = (
        (are_sentences, MIN_SENTENCE),
        ([not is_id for is_id in are_ids], MIN_WIDTH),
        ([True] * len(widths), MIN_WIDTH),
    )
    for may_narrow, least in stages:
        narrowed = widths
        for most in range(max(widths), least - 1, -1):
            if sum(narrowed) <= room:
                return narrowed
            narrowed = [min(width, most) if may else width for width, may in zip(widths, may_narrow, strict=True)]
        widths = narrowed
    return widths


def _fold(cell: str, width: int) -> list[str]:
    """Lines of at most this width. A word that is longer keeps its beginning and its end, which tell refs apart."""
    if len(cell) <= width:
        return [cell]
    words = [
        word if len(word) <= width else f"{word[: (width - 1) // 2]}…{word[-(width // 2) :]}" for word in cell.split()
    ]
    return textwrap.wrap(" ".join(words), width, break_on_hyphens=False) or [""]


def shown(refs: Sequence[str], most: int = 3) -> str:
    """A few refs, and how many more."""
    return few_of(refs, most)


def count(n: int, noun: str, plural: str | None = None) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {plural or noun + 's'}"
