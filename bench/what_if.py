"""The processor seconds of a what-if that reaches ten thousand partitions. `python -m bench.what_if --partitions 1000000`.

Half of the partitions that it reaches are inputs of the other half, so that a taint builds all of them in two stages.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from bench.engine.filling import fill, name_of, opened, sizes
from databuild_dagster.engine.engine import Engine
from databuild_dagster.features.what_if.answers import WhatIf
from databuild_dagster.features.what_if.questions import if_tainted
from databuild_dagster.model.refs import Ref


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=100_000)
    parser.add_argument("--reached", type=int, nargs="+", default=[2, 100, 1_000, 10_000])
    parser.add_argument("--url", help="of an empty database, by default SQLite in a temporary folder")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="databuild-bench-") as folder:
        engine = opened(given.url or f"sqlite:///{Path(folder) / 'databuild.db'}")
        fill(engine, given.partitions)
        print(f"{given.partitions:,} partitions")
        for reached in given.reached:
            seconds, found = measured(engine, min(reached // 2, sizes(given.partitions).pairs), given.rounds)
            print(
                f"{len(found.reached):6,} reached: {statistics.median(seconds):.3f} s, at most {max(seconds):.3f} s",
                flush=True,
            )
        engine.store.close()


def measured(engine: Engine, n: int, rounds: int) -> tuple[list[float], WhatIf]:
    """The processor seconds of each round, and the last answer."""
    refs = [Ref(f"a@{name_of(key)}") for key in range(n)]
    seconds = []
    for _ in range(rounds):
        began = time.process_time()
        found = if_tainted(engine, refs, downstream=True)
        seconds.append(time.process_time() - began)
    assert len(found.changes) == len(found.reached) == 2 * n
    return seconds, found


if __name__ == "__main__":
    main()
