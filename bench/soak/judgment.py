"""After the troubles: what was lost, what was built twice, what is wrong, and what is left."""

import inspect
import json
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from bench.soak.processes import SPARK
from bench.soak.project import ASSETS, N_ROWS, expected
from bench.soak.service import END_SECONDS, MAX_SECONDS, Soak
from databuild_dagster.model import events as e
from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.operations.states import OperationState
from databuild_dagster.model.refs import Ref, asset_of, derive_partition_uuid, make_ref, partition_key_of
from databuild_dagster.model.states import InstanceState, JobRunState, WantState
from databuild_dagster.spark.errors import AttemptIncomplete, ServerFailed, SparkUnreachable
from databuild_dagster.store.errors import HeartbeatsUnusable, StoreBusy, StoreSilent, StoreUnusable
from databuild_dagster.store.queries.wants import WantFilter

#: The package's errors of what a soak kills and freezes.
_ERRORS_OF_TROUBLES = (
    AttemptIncomplete,
    HeartbeatsUnusable,
    ServerFailed,
    SparkUnreachable,
    StoreBusy,
    StoreSilent,
    StoreUnusable,
)
#: What `explain_failure` says of a Spark that was killed or frozen.
_SENTENCES_OF_TROUBLES = (
    "The Spark server was lost during the job: the next attempt gets another session.",
    "A Spark executor or worker was lost during the job.",
    "The Spark job was interrupted.",
)


@dataclass
class Found:
    """The violations, and the rows to print."""

    violations: list[str] = field(default_factory=list)
    rows: list[tuple[str, str]] = field(default_factory=list)


class Judgment:
    """Asks each question when all can be asked: nothing is killed or frozen any longer."""

    def __init__(self, soak: Soak) -> None:
        self.soak = soak

    def judged(self) -> Found:
        """After the troubles; the services are stopped."""
        found = Found(violations=self.soak.violations)
        began = time.monotonic()
        n_retried = self._retry_until_ended(found)
        seconds = time.monotonic() - began
        wants = self._wants()
        found.rows += [
            ("troubles", ", ".join(f"{name} {n}" for name, n in self.soak.troubles.most_common())),
            ("troubles in all", str(self.soak.troubles.total())),
            ("services started", str(self.soak.n_starts)),
            ("commands", ", ".join(f"{name} {n}" for name, n in self.soak.commands.most_common())),
            ("wants", ", ".join(f"{state} {n}" for state, n in Counter(want.state.value for want in wants).items())),
            ("all wants ended after the last trouble", f"{seconds:.0f} s"),
            ("refs that used up three attempts, and were retried", str(n_retried)),
        ]
        self._check_wants(found, wants)
        self._check_builds(found)
        self._check_data(found)
        self._check_store(found)
        self._check_remains(found)
        self._check_dagster(found)
        self._check_arrivals(found)
        self._check_operations(found)
        left = self.soak.stop()
        found.violations += left
        found.rows.append(("processes, temporary folders and sessions left", str(len(left))))
        found.rows.append(("violations", str(len(found.violations))))
        return found

    def _retry_until_ended(self, found: Found) -> int:
        """As an operator would with what was killed three times: no kill hits it now."""
        retried: set[str] = set()
        for _ in range(3):
            if not self.soak.wait(
                lambda: not self.soak.queries.wants.newest(WantFilter(open_only=True)),
                "all wants have ended",
                END_SECONDS,
            ):
                found.violations += [
                    f"want {want.id} of {', '.join(want.refs)} is {want.state.value}: {self._explained(want.refs[0])}"
                    for want in self.soak.queries.wants.newest(WantFilter(open_only=True))
                ]
                break
            failed = [ref for ref, state in self._states().items() if state is InstanceState.FAILED]
            if not failed:
                break
            retried.update(failed)
            self.soak.command("retry", *failed)
        return len(retried)

    def _explained(self, ref: str) -> str:
        return json.dumps(self.soak.command("explain", ref)[1])

    def _wants(self) -> list[Any]:
        return self.soak.queries.wants.newest(most=1_000_000)

    def _states(self) -> dict[Ref, InstanceState | None]:
        refs = {event_ref for want in self._wants() for event_ref in want.refs}
        return self.soak.queries.canonical.states(refs)

    def _check_wants(self, found: Found, wants: Sequence[Any]) -> None:
        known = {want.request_id for want in wants}
        found.violations += [
            f"request {item} was acknowledged and is not there" for item in self.soak.acknowledged if item not in known
        ]
        found.rows.append(("requests acknowledged", str(len(self.soak.acknowledged))))
        states = self._states()
        found.violations += [
            f"{ref} is {'missing' if state is None else state.value} in the end"
            for ref, state in states.items()
            if state is not InstanceState.LIVE
            and any(ref in want.refs and want.state is not WantState.CANCELED for want in wants)
        ]
        for want in wants:
            if want.state is WantState.CANCELED and want.source != "job run":
                found.violations.append(f"want {want.id} is Canceled, and it was not canceled")
            if want.state is WantState.EXPIRED:
                found.violations.append(f"want {want.id} is Expired")
        # Hard failures have no excuse.
        for run in self._job_runs():
            if run.state is JobRunState.FAILED and not _of_a_trouble(run.error or ""):
                found.violations.append(f"job run {run.id} of {', '.join(run.refs)} failed: {(run.error or '')[:300]}")

    def _job_runs(self) -> list[Any]:
        return self.soak.queries.job_runs.newest(most=1_000_000)

    def _check_builds(self, found: Found) -> None:
        """A ref becomes live once, and once more for every time that it was tainted, and a lot for every file that came late."""
        tainted: Counter[str] = Counter()
        late_files = Counter({make_ref("arrived", day): len(files) - 1 for day, files in self.soak.arrived.items()})
        for event in self._events():
            if isinstance(event.fact, e.TaintCreated):
                tainted.update(event.fact.refs)
        live: Counter[Ref] = Counter(
            ref for run in self._job_runs() if run.state is JobRunState.SUCCEEDED for ref in run.refs
        )
        found.violations += [
            f"{ref} was built {n} times and tainted {tainted[ref]} times"
            for ref, n in live.items()
            if n > 1 + tainted[ref] + late_files[ref]
        ]
        lines = [line.split() for line in (self.soak.folder / "witness.log").read_text().splitlines()]
        started = Counter(line[1] for line in lines if line[0] == "start")
        frozen = self.soak.processes.since
        # A process that was frozen for longer than its lease may go on with its call, in vain, beside the next one.
        met = [line for line in lines if line[0] == "met"]
        late = [
            line
            for line in met
            if any(float(frozen.get(int(pid), "inf")) < float(line[5]) for pid in (line[3], line[6]))
        ]
        found.violations += [
            f"{line[1]} was built by two at once, seen by {line[3]} at {line[5]}" for line in met if line not in late
        ]
        states = Counter(run.state.value for run in self._job_runs())
        found.rows += [
            ("refs live", str(len(live))),
            ("job runs", ", ".join(f"{state} {n}" for state, n in states.most_common())),
            ("builds that became live", str(live.total())),
            ("calls beside one that was frozen beyond its lease", str(len(late))),
            ("calls begun", str(started.total())),
            ("calls repeated, for one was killed or late", str(started.total() - live.total())),
        ]

    def _events(self) -> Iterator[e.Event]:
        seq = 0
        while page := self.soak.queries.events.after(seq):
            yield from page
            seq = page[-1].seq

    def _check_data(self, found: Found) -> None:
        live = {entry.ref: entry.manifest_uri for entry in self._live()}
        for ref, manifest in live.items():
            assert manifest is not None
            table = pq.read_table([str(path) for path in Path(manifest).parent.glob("*.parquet")])
            rows = sorted(table.column(0).to_pylist())
            if rows != expected(ref):
                found.violations.append(f"{ref} reads as {rows[:20]}, not as {expected(ref)[:20]}")
        found.rows.append(("refs read back", str(len(live))))

    def _check_store(self, found: Found) -> None:
        code, answer = self.soak.command("log", "check", "--deep", "--contents")
        if code != 0:
            found.violations.append(f"check --deep --contents: {json.dumps(answer)[:2000]}")
        found.rows.append(("check --deep --contents", "clean" if code == 0 else "not clean"))

    def _check_remains(self, found: Found) -> None:
        """Of what was killed nothing is left, a few ticks later."""

        def left() -> list[str]:
            return [*self._folders_left(), *self._servers_left(), *self._dagster_runs_left()]

        self.soak.wait(lambda: not left(), "nothing is left", MAX_SECONDS)
        remains = left()
        found.violations += remains[:20]
        found.rows += [
            ("remains", str(len(remains))),
            ("Dagster runs of people that died before they asked", str(len(self._dagster_runs_unfinished()))),
        ]

    def _check_dagster(self, found: Found) -> None:
        """Dagster shows as materialized what is live, by the instance that is."""
        from dagster import AssetKey, AssetRecordsFilter, DagsterInstance

        unreported = []
        with DagsterInstance.from_config(str(self.soak.home)) as instance:
            for live in self._live():
                of_ref = AssetRecordsFilter(AssetKey(asset_of(live.ref)), [partition_key_of(live.ref) or ""])
                records = instance.fetch_materializations(of_ref, limit=1).records
                answer = records[0].asset_materialization if records else None
                if answer is None or live.uuid not in (answer.tags or {}).values():
                    unreported.append(f"{live.ref} is live by {live.uuid}, and Dagster did not get it")
        found.violations += unreported
        found.rows.append(("live and not reported to Dagster", str(len(unreported))))

    def _check_arrivals(self, found: Found) -> None:
        """Each file that has arrived is in the live lot of its day."""

        def missing() -> list[str]:
            live = {lot.ref: lot.manifest_uri for lot in self.soak.queries.instances.live("arrived")}
            return [
                f"{ref} reads as {values}, not as {arrived}"
                for day, arrived in self.soak.arrived.items()
                if (values := _values_in(live.get(ref := make_ref("arrived", day)))) != sorted(arrived)
            ]

        self.soak.wait(lambda: not missing(), "all files are recorded")
        found.violations += missing()
        found.rows.append(("files arrived", str(sum(map(len, self.soak.arrived.values())))))

    def _check_operations(self, found: Found) -> None:
        """Each ends once, and counts each row."""

        def open_ones() -> Any:
            return self.soak.command("operation", "list")[1]

        self.soak.wait(lambda: not open_ones(), "all operations have ended", END_SECONDS)
        for id in self.soak.operations:
            shown = self.soak.command("operation", "show", id)[1]
            if shown is None or shown["state"] != OperationState.SUCCESS or shown["rows"] != N_ROWS * shown["total"]:
                found.violations.append(f"operation {id}: {shown}")
        found.rows.append(("operations", str(len(self.soak.operations))))

    def _live(self) -> list[Any]:
        return [live_instance for asset in ASSETS for live_instance in self.soak.queries.instances.live(asset)]

    def _folders_left(self) -> list[str]:
        warehouse = self.soak.home / "warehouse"
        staging = [f"staging folder {path.name} is left" for path in (warehouse / ".staging").glob("*")]
        # What was live once stays until it is removed on purpose, also when another instance is canonical.
        kept = {
            derive_partition_uuid(run.id, ref)
            for run in self._job_runs()
            if run.state in (JobRunState.SUCCEEDED, JobRunState.QUEUED, JobRunState.RUNNING)
            for ref in run.refs
        }
        instances = [
            f"{path.relative_to(warehouse)} is left, which was never live"
            for path in warehouse.glob("*/data/instance=*")
            if path.name.removeprefix("instance=") not in kept
        ]
        return staging + instances

    def _servers_left(self) -> list[str]:
        servers = self.soak.processes.find(SPARK)
        return [f"{len(servers)} Spark servers run: {servers}"] if len(servers) > 1 else []

    def _dagster_runs_left(self) -> list[str]:
        """Of what is ours to end: launches, and what is held. Who pressed a button in vain is asked elsewhere."""
        from databuild_dagster.bindings.adapter.run_tags import LAUNCH_TAG

        return [
            f"Dagster run {run.run_id} is {run.status.value} for ever"
            for run in self._dagster_runs_unfinished()
            if run.tags.get(LAUNCH_TAG) is not None or run.tags.get("databuild/hold") == "true"
        ]

    def _dagster_runs_unfinished(self) -> list[Any]:
        from dagster import DagsterInstance

        with DagsterInstance.from_config(str(self.soak.home)) as instance:
            return [run for run in instance.get_runs() if not run.is_finished]


def _of_a_trouble(error: str) -> bool:
    """Whether the error is exactly one that a killed or frozen process causes."""
    return error in _SENTENCES_OF_TROUBLES or any(_is_an(kind, error) for kind in _ERRORS_OF_TROUBLES)


def _is_an(kind: type[DatabuildError], error: str) -> bool:
    """Whether the text is the message of this kind of error, with any facts."""
    message = re.escape(" ".join(inspect.cleandoc(kind.__doc__ or "").split()))
    return re.match(re.sub(r"\\\{\w+(!r)?\\\}", ".*", message), error, re.DOTALL) is not None


def _values_in(manifest: str | None) -> list[int]:
    """The values in the files of a lot."""
    if manifest is None:
        return []
    files = [entry["uri"] for entry in json.loads(Path(manifest).read_text())["files"]]
    return sorted(value for path in files for value in pq.read_table(path).column("value").to_pylist())
