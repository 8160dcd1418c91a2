"""The story as far as code from before delegation, expiry and lineage could tell it, in the words that it had.

Run by that code, and not by today's, then written down by today's:

PYTHONPATH=<a checkout of that code> python -P tests/golden/first_story.py build.db
python -m tools.golden --from build.db --version <version>+g<commit>
"""

from __future__ import annotations

import sys

from databuild_dagster.model import commands as c
from databuild_dagster.model.datasets import DatasetKind
from databuild_dagster.model.events import Arrival
from tests.support.catalog import HERE, dataset
from tests.support.world import EMPTY, World

DAYS = ("2024-01-01", "2024-01-02", "2024-01-03")
DATASETS = (
    *(dataset(name) for name in "abcdefghijklm"),
    dataset("b2"),
    dataset("left", job="pair"),
    dataset("right", job="pair"),
    dataset("days", keys=DAYS, most=2, concurrency=1),
    dataset("months/total", ("days", "all"), code_version="v2 ü"),
    dataset("drop", kind=DatasetKind.SOURCE, location="elsewhere", code_version=None),
    dataset("gone"),
    *(dataset(f"source{n}") for n in range(8)),
    dataset("n"),
)
A_MINUTE = 60.0
AN_HOUR = 3600.0


def tell(w: World) -> None:
    turn = w.clock.turn
    days = [f"days@{d}" for d in DAYS]
    w.want(*days, "months/total", priority=3, ttl=None, sla=AN_HOUR)
    w.start(*days[:2])
    turn(A_MINUTE)
    w.live(*days[:2])
    w.start(days[2])
    w.succeed(days[2], manifest=EMPTY)
    w.succeed("months/total", inputs=days)
    turn(A_MINUTE)
    w.start("left", "right", together=True)
    w.succeed("left", "right", inputs=["months/total"])
    w.arrive("drop", "file:///drop/1")
    turn(A_MINUTE)
    w.arrive("drop", "file:///drop/2")
    w.handle(c.ArriveLots(arrivals=(Arrival(job_run_id=w.ids(), ref="j", origin="s3://bucket/j", manifest=EMPTY),)))
    # misses
    w.want("a", priority=2, sla=AN_HOUR)
    w.miss("a", "b", "c")
    turn(A_MINUTE)
    w.miss("b", "c")
    w.live("c", "b")
    w.succeed("a", inputs=["b", "c"])
    needless = w.want("d")
    w.miss("d", "e")
    w.handle(c.CancelWants(ids=(needless,), reason="needless"))
    turn(A_MINUTE)
    w.want("m")
    launch = w.launch_of("m")
    w.handle(
        c.BufferMissed(
            launch_id=launch.launch_id,
            job=launch.job,
            location=launch.location,
            owner=launch.owner,
            runs=launch.runs,
            misses=(c.RunMiss(launch.runs[0].job_run_id, {"m": ("b2",)}),),
            code_version=launch.code_version,
        )
    )
    w.live("b2", "m")
    w.taint("m")
    w.miss("f", "g")
    w.miss("g", "f")
    w.miss("h", "drop@2024-01-01")
    w.start("n")
    w.live("source0")
    w.miss("n", "source0")
    turn(AN_HOUR)
    w.miss("n", *(f"source{n}" for n in range(1, 8)))
    w.live(*(f"source{n}" for n in range(1, 8)))
    w.live("n")
    # failures
    w.miss("e", "d")
    w.fail("d", kind="transient", error="executor lost")
    turn(AN_HOUR)
    w.fail("d", error="division by zero")
    turn(A_MINUTE)
    w.lose("i")
    turn(AN_HOUR)
    w.start("i")
    w.cancel("i", keep_wants=True)
    turn(AN_HOUR)
    w.buffer("i")
    w.handle(c.CancelJobRuns(job_run_ids=(w.canonical("i").job_run,), reason="not today"))
    turn(AN_HOUR)
    w.taint("d", reason="the divisor is mended")
    w.want("d")
    turn(A_MINUTE)
    w.live("d")
    # taints
    taint = w.taint("c", "left", reason="looked wrong")
    w.handle(c.UntaintPartitions(taint_id=taint, reason="was right"))
    w.taint("left")
    w.live("left")
    taint = w.taint("b", "j", reason="half of it is missing")
    turn(A_MINUTE)
    w.live("b")
    w.untaint(taint)
    w.start("m")
    w.taint("c", reason="while m reads it")
    w.succeed("m", inputs=["c"])
    w.handle(c.CreateWants(wants=(("c",),), comment="once more, “please”", source="api", source_id="x"))
    turn(A_MINUTE)
    w.live("c")
    # claims
    w.claim("left", dagster_run_id="asks-for-what-is-live")
    w.taint("d")
    w.claim("d", "e", dagster_run_id="asks-first")
    w.claim("d", "e", "b", dagster_run_id="asks-second")
    turn(A_MINUTE)
    w.fail("e", error="no such file")
    w.taint("f")
    w.claim("f", dagster_run_id="builds")
    w.claim("f", dagster_run_id="joins")
    w.succeed("f")
    w.handle(c.RegisterDatasets(location=HERE, datasets=tuple(s for s in DATASETS if s.asset != "gone")))
    # still going on
    w.taint("a", "right", "h")
    w.want("a", "right", priority=5, sla=AN_HOUR)
    w.miss("right", "a")
    w.miss("a", "h")
    w.claim("right", "h", dagster_run_id="waits")
    w.taint("months/total")
    w.buffer("months/total")
    w.start("i")
    w.handle(c.CreateWants(wants=(("k",), ("l",)), priority=-1, data_timestamp=w.clock.now, sla_seconds=AN_HOUR))
    w.lose("k")
    w.miss("l", "g")
    turn(A_MINUTE)


if __name__ == "__main__":
    world = World(DATASETS, url=f"sqlite:///{sys.argv[1]}")
    tell(world)
    assert world.check() == []
    world.store.close()
