"""Ticks beside refs that cannot be launched: 500 assets that raise, and 100,000 due refs of a job that may launch nothing.

    python -m bench.engine.aside [--turns N]

The compared stores take turns, one tick every five seconds of a clock that is turned by hand. Prints Markdown: medians of
processor time of one tick, and the median of the ratios of neighboring ticks.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import tempfile
import time
from pathlib import Path

from bench.engine.commands import NoLauncher, NothingForeign
from bench.engine.filling import LOCATION, AnyPartition
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.holders import new_id
from databuild_dagster.engine.judge import Judge
from databuild_dagster.engine.tick import TickReport, tick
from databuild_dagster.engine.tick_pass import Pass
from databuild_dagster.engine.why.explain import explain
from databuild_dagster.model.commands import CreateWants, RegisterDatasets
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.refs import Ref
from databuild_dagster.store.store import open_store

ASSETS, RAISING = 1_000, 500
FEW, MANY = 10_000, 100_000
SECONDS_BETWEEN_TICKS = 5.0
#: Ticks that are not counted: the first ones record reasons, and try without a pause.
WARM_UP = 3


class SomeRaise(AnyPartition):
    """The mappings of some assets raise."""

    def inputs(self, dataset: DatasetSpec, partition_key: str | None) -> tuple[Ref, ...]:
        if dataset.asset.startswith("bad"):
            raise ValueError(f"the zones of {dataset.asset} do not match")
        return ()


class Ticking:
    """A store whose due refs are not launched, because their jobs may have no launch."""

    def __init__(self, folder: Path, name: str, refs: list[str]) -> None:
        self.now = time.time()
        assets = dict.fromkeys(ref.partition("@")[0] for ref in refs)
        store = open_store(f"sqlite:///{folder / name}.db")
        self.engine = Engine(store, SomeRaise(), clock=lambda: self.now, steady=lambda: self.now, new_id=new_id)
        datasets = tuple(DatasetSpec(asset, asset, LOCATION, concurrency=0) for asset in assets)
        self.engine.handle(RegisterDatasets(location=LOCATION, datasets=datasets))
        for first in range(0, len(refs), FEW):
            self.engine.handle(CreateWants(wants=tuple((ref,) for ref in map(Ref, refs[first : first + FEW]))))
        self.this = Pass(self.engine, LOCATION, NoLauncher(), NothingForeign(), Judge(), owner="bench")
        self.report = TickReport()

    def seconds(self) -> float:
        self.now += SECONDS_BETWEEN_TICKS
        # Else a tick pays for the garbage of the other store, or never does.
        gc.collect()
        begun = time.process_time()
        self.report = tick(self.this)
        return time.process_time() - begun


def compared(one: Ticking, other: Ticking, turns: int) -> str:
    """The cells of a row: medians in milliseconds, and the ratio."""
    pairs = [(one.seconds(), other.seconds()) for _ in range(WARM_UP + turns)][WARM_UP:]
    medians = [statistics.median(seconds) * 1000 for seconds in zip(*pairs, strict=True)]
    mean = sum(second for _, second in pairs) / sum(first for first, _ in pairs)
    ratio = statistics.median(second / first for first, second in pairs)
    return f"{medians[0]:.1f} | {medians[1]:.1f} | {ratio:.2f} | {mean:.2f}"


def main() -> None:
    """Print the rows, after a look whether `explain` names each ref that raises."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=60)
    turns = parser.parse_args().turns
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        good = [f"good_{number:04}" for number in range(ASSETS - RAISING)]
        bad = [f"bad_{number:04}" for number in range(RAISING)]
        without, beside = Ticking(folder, "without", good), Ticking(folder, "beside", good + bad)
        healthy = Ticking(folder, "healthy", good + [f"fine_{number:04}" for number in range(RAISING)])
        raising = compared(without, beside, turns)
        as_many = compared(healthy, beside, turns)
        assert beside.report.set_aside.keys() == set(bad), "each is set aside, also while it rests"
        for ref in bad:
            assert any("the zones of" in cause.why for cause in explain(beside.engine, ref).causes), ref
        few, many = (
            Ticking(folder, str(most), [f"wide@{number:06}" for number in range(most)]) for most in (FEW, MANY)
        )
        waiting = compared(few, many, max(5, turns // 4))
    print("| a tick | first, ms | second, ms | ratio | of the sums |\n|---|---|---|---|---|")
    print(f"| over {ASSETS - RAISING} assets; the same beside {RAISING} that raise | {raising} |")
    print(f"| over {ASSETS:,} healthy assets; over {ASSETS:,} of which {RAISING} raise | {as_many} |")
    print(f"| over {FEW:,} due refs that cannot be launched; over {MANY:,} | {waiting} |")


if __name__ == "__main__":
    main()
