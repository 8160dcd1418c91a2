"""Writes docs/performance.md from the results that the benches have recorded in bench/results: `python -m bench.report [--check]`.

`PAGE` says which tables the page has, and in which order. To add a table, let its bench call `bench.results.record`, and name it here.
A table that no bench records yet is edited in its file.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

from bench.results import FOLDER

PATH = FOLDER.parent.parent / "docs" / "performance.md"
PEERS = ("shared", "sail", "sqlmesh-duckdb", "sqlmesh-spark", "sdp", "script", "dagster")


class Section(NamedTuple):
    title: str
    #: What the figures mean, and the aim.
    text: str
    #: Names of results; one with several results beside each other is a tuple.
    tables: Sequence[str | tuple[str, ...]]


INTRODUCTION = """
# Performance

`python -m bench.report` writes this page from `bench/results/`, which has the versions and notes of each table, too.

- **CPU s** are processor seconds of all processes, with servers and their children. Seconds (s) are by the clock.
- Two cores that other work shares: trust the ratios more than the seconds.
- **The floor** is the same work without this package, and "× floor" a multiple of it. **The aim** is what we want to reach.
"""

PAGE = (
    Section(
        "Beside other tools",
        "The example's flights, CPU s. A dash is a step that the tool cannot do alone or that was not measured. "
        "SQLMesh's March has 58 days, because its `run` fills each gap. Declarative Pipelines computes everything again; an earlier script "
        "of the same steps measured it on a machine half as fast. Against SQLMesh on Spark the aims are 0.55, 0.1, 0.15 and 0.15 times for "
        "January, again, a day and a wrong day; 0.48, 0.03, 0.19 and 0.23 are reached. Against SQLMesh on DuckDB the aim is 1.0; by Sail "
        "they are 1.6, 0.1, 1.3 and 1.6. The last row says why: Dagster and Spark's client are imported before the first line of work, and "
        "take four fifths of SQLMesh's whole day.",
        [tuple(f"peers-{name}" for name in PEERS)],
    ),
    Section(
        "Pipeline",
        "January on an empty home with a warm Spark server; the floor is `bench/plain_spark.py`. The aims are 1.5 for January, the whole "
        "command, and 1.10 for the year from the first want on; both are missed. January's floor and the imports of the command alone are "
        "1.45. In the year the process that builds takes 4.5 ms for each partition beyond its imports: a quarter writes files and "
        "manifests, a fifth is Dagster's runs and events. The rest is Spark's, for more and smaller jobs than the floor has.",
        ["pipeline-january", "pipeline-year", "pipeline-plain-dagster", "year-sail", "chain"],
    ),
    Section(
        "From a want to Spark",
        "Beside `databuild dev` with a warm server, on a quiet machine. The aim is 3 s from a want to its first Spark job in a process of "
        "its own. It is reached where the next look at the sensors comes at once; a plain asset of Dagster takes longer to its function.",
        ["first-job"],
    ),
    Section(
        "The start of a Spark server",
        "A new server, with and without the archive of Spark's classes.",
        ["server-start"],
    ),
    Section(
        "A Spark where the data is",
        "The year by Sail, with SeaweedFS that holds each answer back for so long. The aim of 1.3 is met from 20 ms on by four launches at "
        "a time. No byte of data but footers comes to the process that builds.",
        ["anywhere-latency"],
    ),
    Section(
        "Builders",
        "Processes that share one PostgreSQL, each with 100 partitions of its own. The aim is to wait for the lock for at most 2 % of the "
        "time; eight builders on two cores miss it.",
        ["builders"],
    ),
    Section("Delegation", "", ["delegation"]),
    Section(
        "Environments",
        "An environment of a base with 1,000,000 partitions, the year of the example with one changed asset of ten, and a tick of a base "
        "without environments, whose aim is 1.02 times the tick without the feature. The promotion misses its aim.",
        ["environments"],
    ),
    Section("Lots", "A gap report on 105,120 lots, whose aim is 0.5 s.", ["lots-gaps"]),
    Section("Commands", "CPU s of the whole process; `import dagster` takes 1.10.", ["cli"]),
    Section(
        "Pages",
        "1,105,322 built partitions, 5,002,079 events; the 95th percentile of CPU time after a new event.",
        ["pages"],
    ),
    Section(
        "Engine",
        'A store of 1,000,000 partitions against one of 10,000. "Raw" is a database transaction without the engine, with the same '
        'durability. The column "hard" must hold, and is missed where it says NO.',
        ["engine"],
    ),
)

#: The number of rows that reach their aim and are shown. Each row that misses its aim is shown.
REACHED = 1


def page() -> str:
    shown = {
        name for section in PAGE for table in section.tables for name in ([table] if isinstance(table, str) else table)
    }
    others = sum(path.stem not in shown for path in FOLDER.glob("*.json"))
    ending = f"\n`bench/results/` has {others} more tables.\n" if others else ""
    return INTRODUCTION.lstrip() + "".join(chain.from_iterable(map(section_lines, PAGE))) + ending


def section_lines(section: Section) -> Iterator[str]:
    sources: list[str] = []
    yield f"\n## {section.title}\n"
    if section.text:
        yield f"\n{wrapped(section.text)}\n"
    for table in section.tables:
        names = [table] if isinstance(table, str) else table
        results = [result for name in names if (result := read(name)) is not None]
        if results:
            yield f"\n{markdown(results)}\n{left_out(results)}"
            sources += [source(result) for result in results]
    # Tables of one run say so once.
    yield "\n" + "".join(f"{line}\n" for line in dict.fromkeys(sources))


def read(name: str) -> dict[str, Any] | None:
    """None for a peer that was never measured; each other table must be there."""
    path = FOLDER / f"{name}.json"
    if name.startswith("peers-") and not path.exists():
        return None
    result: dict[str, Any] = json.loads(path.read_text())
    return result


def markdown(results: Sequence[dict[str, Any]]) -> str:
    """One table; of several results, the first columns are the same and are shown once."""
    rows = [results[0]["columns"], *shown_rows(results[0])]
    for result in results[1:]:
        rows = [row + other[1:] for row, other in zip(rows, [result["columns"], *shown_rows(result)], strict=True)]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def shown_rows(result: dict[str, Any]) -> list[list[str]]:
    """All rows; of a table with a column "ok", the rows that miss their aim, and the first rows that reach their aim."""
    rows: list[list[str]] = result["rows"]
    if result["columns"][-1] != "ok":
        return rows
    reached = [row for row in rows if row[-1] == "yes"][:REACHED]
    return [row for row in rows if row[-1] != "yes" or row in reached]


def left_out(results: Sequence[dict[str, Any]]) -> str:
    n = sum(len(result["rows"]) - len(shown_rows(result)) for result in results)
    return f"\n`bench/results/{results[0]['name']}.json` has {n} more rows, which reach their aim.\n" if n else ""


def source(result: dict[str, Any]) -> str:
    facts = [f"commit {result['commit']}" if result["commit"] else "commit not noted"]
    facts += [f"load {result['load']}"] if result["load"] is not None else []
    return f"- `{result['command']}`: {', '.join(facts)}"


def wrapped(text: str, width: int = 138) -> str:
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) >= width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return "\n".join(lines)


def main() -> None:
    if "--check" in sys.argv[1:]:
        if PATH.read_text(encoding="utf-8") != page():
            sys.exit("docs/performance.md is out of date: python -m bench.report")
    else:
        PATH.write_text(page(), encoding="utf-8")
        print(f"{PATH.name}: {len(page().split()):,} words")


if __name__ == "__main__":
    main()
