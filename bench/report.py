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

`python -m bench.report` writes this page from `bench/results/`, where each bench records its table with its command, commit and load.

- **CPU s** are processor seconds of all processes, with servers and their children. Seconds (s) are by the clock.
- Trust the ratios more than the seconds: the machine has two cores and shares them with other work, and load makes everything dearer.
- **The floor** is the same work without this package, and "× floor" a multiple of it. **The aim** is what we want to reach.
"""

PAGE = (
    Section(
        "Beside other tools",
        "The example's flights, from the same files of raw data, CPU s. A dash is a step that the tool cannot do "
        "alone or that was not measured. "
        "SQLMesh's March has 58 days, because its `run` fills each gap. Declarative Pipelines and the script "
        "compute everything again. Plain "
        "Dagster has one Dagster run for the day.",
        [tuple(f"peers-{name}" for name in PEERS)],
    ),
    Section(
        "The start of a Spark server",
        "The [archive of Spark's classes](how-to/spark.md#a-server-that-nothing-uses) and a later second compiler. "
        "A long job (an "
        "aggregation of 60,000,000 rows) costs the same with both, 28 CPU s; without the second compiler it costs "
        "62.",
        ["server-start"],
    ),
    Section(
        "Pipeline",
        "January is `databuild build carrier_monthly@2013-01-01` on an empty home with a warm Spark server, and the "
        "floor is "
        "`bench/plain_spark.py` in a warm session. The aims are 2 times the floor for January until the last live "
        "ref, 1.5 and 2.2 for the year "
        "without and with Dagster's own writes, and 3 s with nothing to do. All are reached.",
        ["pipeline-january", "pipeline-year", "pipeline-plain-dagster", "spark-jobs", "at-once"],
    ),
    Section(
        "Events of Dagster",
        "The materializations that a step reports together are one batch, and the file of a new run gets the tables of Dagster's index. "
        "The peak of the year is of the rows that the example makes in Python, so its aim of 350 MB is not reached.",
        ["dagster-events", "year-sail"],
    ),
    Section("Spark without Java", "The aim is 0.5. All rows of the ten tables are the same in both.", ["without-java"]),
    Section(
        "A Spark where the data is",
        "By Sail in a mount namespace of its own, with one bucket. The first table has an S3 server that answers "
        "one request at a time, the "
        "second one SeaweedFS, which holds each answer back for so long. The aim for the year is 1.3: it is met "
        "from 20 ms on by four launches at a "
        "time. On a store on the same machine the process that builds is the limit. No byte of data but footers "
        "comes to it.",
        ["anywhere", "anywhere-latency"],
    ),
    Section(
        "Batches",
        "Memory of many refs in one batch; a scan of 1,000 files. The aim of the scan is 1.2.",
        ["batches", "batches-scan"],
    ),
    Section(
        "Builders",
        "Processes that share one PostgreSQL, each with 100 partitions of its own. The rate follows the cores. The "
        "aim is to wait for the lock "
        "for at most 2 % of the time; eight builders on two cores miss it. One log takes about 1,200 partitions per "
        "second in launches of 100, "
        "and 45 launches per second.",
        ["builders"],
    ),
    Section("Delegation", "What [building nothing twice](how-to/delegation.md) costs.", ["delegation"]),
    Section(
        "Lots",
        "A manifest, and a gap report on 105,120 lots, whose aim is 0.5 s. From the arrival of a lot to its launch "
        "takes one tick.",
        ["lots-publish", "lots-gaps", "arrivals-ticks"],
    ),
    Section("Parts", "One of 64 parts fails. The aim of the retry is 1.3 times the part alone.", ["parts"]),
    Section(
        "Published tables",
        "A [table](how-to/open-tables.md) over 100,000 partitions, CPU s and (s). The aims are 60 s and 1.5 s.",
        ["publish"],
    ),
    Section(
        "Operations",
        "A check of 365 files against one Spark job by hand.",
        ["operations-validate"],
    ),
    Section("The log in another database", "One million events, 330 MB. The aim is 180 s.", ["transfer"]),
    Section("Contents of files", "16 files of 33 MB. The aim is half the speed of `sha256sum`.", ["contents"]),
    Section(
        "Commands",
        "CPU s of the whole process; `import dagster` takes 1.10. The aim of the other tables is 0.4.",
        ["cli", "builds-noted", "plans"],
    ),
    Section(
        "Partition keys",
        "800 keys five months after the first. The aim is 0.1 ms; the floor is `strptime` and `strftime` of a key.",
        ["keys"],
    ),
    Section("The check of a log", "The aim is 400 MB.", ["log-check"]),
    Section("What-if", "A taint in a store of 100,000 partitions. The aim is 1 s.", ["what-if"]),
    Section(
        "Pages",
        "1,105,322 built partitions, 5,002,079 events; the 95th percentile of CPU time after a new event.",
        ["pages"],
    ),
    Section(
        "Engine",
        'A store of 1,000,000 partitions against one of 10,000. "Raw" is a database transaction without the engine, '
        "with the same durability. "
        'The column "hard" must hold, and is missed where it says NO. A page of SQLite costs 3.7 µs at COMMIT, a '
        "statement 2 to 8 µs, and the "
        "Python of a success 350 small calls without a hot spot.",
        ["engine"],
    ),
)


def page() -> str:
    shown = {
        name for section in PAGE for table in section.tables for name in ([table] if isinstance(table, str) else table)
    }
    others = sorted(path.stem for path in FOLDER.glob("*.json") if path.stem not in shown)
    ending = (
        f"\n## Tables that this page leaves out\n\n`bench/results/` has the tables {', '.join(f'`{name}`' for name in others)}.\n"
        if others
        else ""
    )
    return INTRODUCTION.lstrip() + "".join(chain.from_iterable(map(section_lines, PAGE))) + ending


def section_lines(section: Section) -> Iterator[str]:
    sources: list[str] = []
    yield f"\n## {section.title}\n\n{wrapped(section.text)}\n"
    for table in section.tables:
        names = [table] if isinstance(table, str) else table
        results = [result for name in names if (result := read(name)) is not None]
        if results:
            yield f"\n{markdown(results)}\n"
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
    rows = [results[0]["columns"], *results[0]["rows"]]
    for result in results[1:]:
        rows = [row + other[1:] for row, other in zip(rows, [result["columns"], *result["rows"]], strict=True)]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def source(result: dict[str, Any]) -> str:
    facts = [result["date"], f"commit {result['commit']}" if result["commit"] else "", *versions(result)]
    facts += [f"load {result['load']}"] if result["load"] is not None else []
    facts.append(result.get("note", ""))
    return f"- `{result['command']}`: {', '.join(filter(None, facts)) or 'commit not noted'}"


def versions(result: dict[str, Any]) -> list[str]:
    return [
        f"{name} {number}"
        for name, number in result["versions"].items()
        if name in ("sqlmesh", "pyspark", "duckdb", "pysail")
    ]


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
