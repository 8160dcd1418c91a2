"""What people do with a deployment while faults strike: commands of three hosts, wants, files that land."""

from __future__ import annotations

import io
import json
import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, NamedTuple

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq

from .faults import FAULTS, SHARED, may_strike, striking
from .hosts import HostDown
from .services import BUCKET, COMMANDERS, Deployment, wait_for

#: On a busy machine a command takes minutes.
COMMAND_SECONDS: Final = 900.0
REACHED_SECONDS: Final = 300.0
END_SECONDS: Final = 900.0
#: Done, and "the same command may succeed later".
GOOD_CODES: Final = (0, 75)
#: By the field that a command's answer has, the kind of what it acknowledges.
KINDS: Final = {"request_id": "request", "taint_id": "taint", "operation": "operation"}
MAX_OPEN_WANTS: Final = 25
MAX_AT_ONCE: Final = 2


class Done(NamedTuple):
    """A command that has ended."""

    host: str
    words: Sequence[str]
    code: int
    out: str
    err: str


class Story:
    """The commands of a story, and what they acknowledged."""

    def __init__(self, at: Deployment) -> None:
        self.at = at
        self.acknowledged: list[tuple[str, str]] = []
        self.landed: dict[str, list[int]] = {}
        self.codes: Counter[str] = Counter()
        #: What commands said that ended neither well nor because their host was killed.
        self.complaints: list[str] = []
        self._pool = ThreadPoolExecutor(max_workers=8)

    # Commands

    def start(self, host: str, *words: str) -> Future[Done]:
        """`databuild WORDS --json` on a host."""
        return self._pool.submit(self.run, host, *words)

    def run(self, host: str, *words: str) -> Done:
        kills = self.at.kills[host]
        try:
            ended = self.at.lab[host].run(
                ["databuild", *words, "--json"], environment=self.at.environment(host), seconds=COMMAND_SECONDS
            )
        except HostDown:
            return Done(host, words, 137, "", "")
        except subprocess.TimeoutExpired:
            self.complaints.append(f"{host}: databuild {' '.join(words)} did not end within {COMMAND_SECONDS:.0f} s")
            return Done(host, words, 124, "", "")
        done = Done(host, words, ended.returncode, ended.stdout, ended.stderr)
        self._acknowledge(done.out)
        killed = self.at.kills[host] > kills
        self.codes["of a killed host" if killed else f"exit {done.code}"] += 1
        if done.code not in GOOD_CODES and not killed:
            said = (done.out.strip() or done.err.strip())[-600:]
            self.complaints.append(f"{host}: databuild {' '.join(words)} ended with {done.code}: {said}")
            self.at.say(self.complaints[-1])
        return done

    def _acknowledge(self, out: str) -> None:
        with suppress(ValueError, IndexError):
            answer = json.loads(out.splitlines()[-1])
            for entry in answer if isinstance(answer, list) else [answer]:
                found = [(kind, entry[name]) for name, kind in KINDS.items() if name in entry]
                self.acknowledged += [item for item in found if item[1] and item not in self.acknowledged]

    def land(self, day: str) -> None:
        """Put a file into the bucket, beside any that the day has."""
        value = 1 + sum(map(len, self.landed.values()))
        contents = io.BytesIO()
        pq.write_table(pa.table({"value": [value]}), contents)
        key = f"landing/{day.replace('-', '')}-{value}.parquet"
        self.at.s3.put_object(Bucket=BUCKET, Key=key, Body=contents.getvalue())
        self.landed.setdefault(day, []).append(value)

    # What the log says, by SQL

    def host_that_builds(self, ref: str) -> str:
        """Wait until a job run of the ref runs, and return the host of its process."""
        found: list[tuple[str]] = []

        def runs() -> bool:
            found[:] = self.at.sql(
                "SELECT l.holder FROM databuild_job_runs j JOIN databuild_launches l ON l.id = j.launch_id "
                "WHERE j.state = 'Running' AND j.refs::jsonb ? %s",
                ref,
            )
            return bool(found)

        assert wait_for(runs, f"{ref} is being built", REACHED_SECONDS), f"nothing built {ref}"
        return found[0][0].split("/")[0]

    def lose(self, ref: str, fault: str) -> None:
        """A fault strikes the host that builds the ref until its job run is lost."""
        lost = "SELECT count(*) FROM databuild_job_runs WHERE state = 'Lost' AND refs::jsonb ? %s"
        with striking(self.at, fault, self.host_that_builds(ref), 5.0):
            # A killed host may come back before that.
            if fault != "host killed":
                wait_for(lambda: self.count(lost, ref) > 0, f"the job run of {ref} is lost", REACHED_SECONDS)
        assert wait_for(lambda: self.count(lost, ref) > 0, f"the job run of {ref} is lost", REACHED_SECONDS)

    def count(self, query: str, *values: Any) -> int:
        return int(self.at.sql(query, *values)[0][0])

    def open_wants(self) -> int:
        return self.count("SELECT count(*) FROM databuild_wants WHERE ended_at IS NULL")

    def open_operations(self) -> list[str]:
        ended = {
            key for (key,) in self.at.sql("SELECT key FROM databuild_meta_entries WHERE key LIKE 'distOpHistory.%%'")
        }
        return [id for kind, id in self.acknowledged if kind == "operation" and f"distOpHistory.{id}" not in ended]

    def ended(self) -> bool:
        """Whether every want and every acknowledged operation ended, and every landed file is recorded, within the time."""
        n_files = sum(map(len, self.landed.values()))

        def is_over() -> bool:
            recorded = self.at.sql(
                "SELECT coalesce(sum((lot ->> 'rows')::int), 0) FROM (SELECT DISTINCT ON (a ->> 'ref') "
                "a -> 'manifest' AS lot FROM databuild_events, jsonb_array_elements(payload::jsonb -> 'arrivals') a "
                "WHERE type = 'LotArrived' ORDER BY a ->> 'ref', seq DESC) newest"
            )[0][0]
            return self.open_wants() == 0 and recorded >= n_files and not self.open_operations()

        return wait_for(is_over, "wants, files and operations are done", END_SECONDS)

    def close(self) -> None:
        """Wait for the commands."""
        self._pool.shutdown()


def short_story(story: Story) -> None:
    """Each kind of fault once, where it hurts; some beside each other, because a lease takes 35 s to be lost."""
    at = story.at

    at.say("1. No fault: wants, builds of hosts with two versions of the code, files")
    for day in ("2013-01-01", "2013-01-01", "2013-01-02"):
        story.land(day)
    story.run("c2", "want", "create", "totals@000", "totals@001")
    build = story.start("c1", "build", "numbers@010", "numbers@011")
    # Without an orchestrator each command would register its code as a whole.
    story.host_that_builds("totals@000")
    story.run("c3", "build", "extra@001")
    build.result()

    at.say("2. A run worker and a build are cut off, the host of another build is killed, each in its function")
    story.run("c3", "want", "create", "slow@020")
    builds = [story.start("c1", "build", "slow@021"), story.start("c2", "build", "slow@022")]
    faults = {"slow@020": "cut off", "slow@021": "cut off, outgoing", "slow@022": "host killed"}
    with ThreadPoolExecutor() as pool:
        list(pool.map(story.lose, faults.keys(), faults.values()))
    for build in builds:
        build.result()

    at.say("3. The primary dies in the middle of a build, and the replica is promoted")
    build = story.start("c1", "build", "slow@030")
    story.host_that_builds("slow@030")
    with striking(at, "failed over", at.primary):
        story.run("c2", "want", "create", "totals@030")
    build.result()

    at.say("4. The store is away, clocks are wrong, the database is restarted, Spark is cut off")
    with striking(at, "clock behind", "c2"), striking(at, "clock ahead", "c1"):
        builds = [story.start("c1", "build", "slow@040"), story.start("c2", "build", "slow@041")]
        story.host_that_builds("slow@040")
        # Their functions end in the outage.
        with striking(at, "store away", "store", 30.0):
            pass
    with striking(at, "database restarted", at.primary):
        pass
    with striking(at, "cut off", "spark", 20.0):
        story.run("c3", "want", "create", "squares@042")
    for build in builds:
        build.result()

    at.say("5. An operation whose executor's host is killed")
    story.run("c2", "operation", "run", "count", "numbers", "--no-wait")
    executor = "SELECT count(*) FROM databuild_meta_entries WHERE key LIKE 'distOp.%%.executor'"
    wait_for(lambda: story.count(executor) > 0, "an executor has a job", REACHED_SECONDS)
    with striking(at, "host killed", "w1", 5.0), striking(at, "slow link", "w2", 10.0):
        pass

    at.say("6. A rolling upgrade: the next code server, with a Spark on a JVM, beside the present one")
    with striking(at, "upgraded", "code2"):
        story.run("c3", "want", "create", "extra@060", "spark_only@007", "squares@060")
        story.host_that_builds("extra@060")
    story.run("c1", "want", "create", "totals@060")


def endless_story(story: Story, seconds: float, seed: int) -> None:
    """Faults and commands of a seed, for so long."""
    at, over, choose = story.at, threading.Event(), random.Random(seed)
    story.run("c1", "want", "create", "totals@000")
    with ThreadPoolExecutor() as pool:
        wanting = pool.submit(_want_on, story, random.Random(seed + 1), over)
        deadline = time.monotonic() + seconds
        strikes: list[tuple[str, Future[None]]] = []
        while time.monotonic() < deadline:
            name = choose.choices(list(FAULTS), [fault.weight for fault in FAULTS.values()])[0]
            host, lasts = choose.choice(FAULTS[name].hosts), choose.uniform(*FAULTS[name].seconds)
            struck = {host for host, strike in strikes if not strike.done()}
            # Two faults of one host would end each other, and what all share has one fault at a time.
            alone = host in SHARED
            if (
                len(struck) < MAX_AT_ONCE
                and not (alone and struck)
                and host not in struck
                and may_strike(at, name, host)
            ):
                strikes.append((host, pool.submit(_strike, at, name, host, lasts)))
            time.sleep(choose.uniform(3, 20))
        over.set()
    for ended in (wanting, *(strike for _, strike in strikes)):
        ended.result()
    if at.is_idle("code2"):
        # What the host with a branch wanted is built by its deploy.
        with striking(at, "upgraded", "code2", 60.0):
            pass


def _strike(at: Deployment, name: str, host: str, seconds: float) -> None:
    with striking(at, name, host, seconds):
        pass


def _want_on(story: Story, choose: random.Random, over: threading.Event) -> None:
    """Commands of three hosts, until it is over."""
    running: list[Future[Done]] = []
    while not over.wait(choose.uniform(2, 8)):
        running = [command for command in running if not command.done()]
        with suppress(psycopg.OperationalError):
            if len(running) < MAX_AT_ONCE * 2 and story.open_wants() < MAX_OPEN_WANTS:
                running += _something(story, choose)


def _something(story: Story, choose: random.Random) -> list[Future[Done]]:
    host, key = choose.choice(COMMANDERS), choose.randrange(900)
    asset = choose.choice(["totals", "squares", "squares", "slow", "slow", "numbers", "spark_only", "extra"])
    refs = [f"{asset}@{key + n:03}" for n in range(choose.randint(1, 3))]
    what = choose.random()
    if what < 0.40:
        return [story.start(host, "want", "create", *refs)]
    if what < 0.75:
        # The host with the next version of the code leaves what differs, and what needs it, to the orchestrator.
        return [story.start("c3" if asset == "extra" else choose.choice(["c1", "c2"]), "build", *refs[:2])]
    if what < 0.82:
        live = story.at.sql(
            "SELECT ref FROM databuild_refs WHERE state = 'Live' AND ref LIKE 'numbers@%%' ORDER BY ref"
        )
        tainted = choose.choice(live)[0] if live else "numbers@000"
        return [story.start(host, "taint", tainted, "--reason", "to see it built again")] if live else []
    if what < 0.92:
        with suppress(Exception):
            story.land(f"2013-01-{choose.randint(3, 28):02}")
        return []
    if what < 0.96:
        return [story.start(host, "admin", "tick", "--until-idle", "--timeout", "2m")]
    # A second one is refused.
    return [] if story.open_operations() else [story.start(host, "operation", "run", "count", "numbers", "--no-wait")]
