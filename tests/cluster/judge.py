"""What must be true after a story, asked from outside: events by SQL, files by pyarrow, and nothing of the package.

A question is a function from the evidence to the violations that it sees. Rules in the words of this file: a job run holds the
leases of its refs from `JobRunBuffered` until it has ended; a success of a job run that has ended is of a fenced attempt; a
ref is published once, and once more for each taint.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from posixpath import normpath
from typing import Any, Final, NamedTuple

import pyarrow.parquet as pq
from pyarrow.fs import S3FileSystem

#: By asset, the rows of a partition: the definition's arithmetic a second time.
ROWS: Final[Mapping[str, Callable[[int], list[int]]]] = {
    "numbers": lambda key: [key * n for n in range(10)],
    "slow": lambda key: [key * 9 + 1],
    "squares": lambda key: [(key * n) ** 2 for n in range(10)],
    "totals": lambda key: [sum((key * n) ** 2 for n in range(10))],
    "spark_only": lambda key: list(range(1, key + 1)),
    "extra": lambda key: [-key],
}
#: The events by which job runs end, and where each names its job runs.
ENDS: Final = {
    "JobRunSucceeded": "runs",
    "JobRunDepMissed": "misses",
    "JobRunFailed": "failures",
    "JobRunLost": "failures",
}
OPEN_WANTS: Final = ("New", "Idle", "Building", "UpstreamBuilding")


class Event(NamedTuple):
    """A row of the event table."""

    seq: int
    type: str
    payload: Mapping[str, Any]


class Canonical(NamedTuple):
    """What readers see of a ref."""

    state: str | None
    job_run: str | None


@dataclass
class Evidence:
    """What was found in the database and in the bucket, and what the commands printed."""

    events: Sequence[Event]
    #: By want, its state, its source, and its refs.
    wants: Mapping[str, tuple[str, str, tuple[str, ...]]]
    canonical: Mapping[str, Canonical]
    #: The values of a partition by the url of its manifest, sorted; or why they cannot be read.
    values: Callable[[str], list[int] | str]
    #: Kind and id of what commands have acknowledged: a request, a taint, an operation.
    acknowledged: Sequence[tuple[str, str]] = ()
    #: By day, the values of the files that were put into the bucket.
    landed: Mapping[str, list[int]] = field(default_factory=dict)

    def of(self, *types: str) -> Iterator[Event]:
        return (event for event in self.events if event.type in types)

    def ends(self, event: Event) -> list[str]:
        """The job runs that an event ends."""
        if event.type == "JobRunCanceled":
            return list(event.payload["job_run_ids"])
        return [run["job_run_id"] for run in event.payload[ENDS[event.type]]] if event.type in ENDS else []

    def manifests(self) -> dict[tuple[str, str], str]:
        """By job run and ref, the url of what was published."""
        found = {}
        for event in self.of("JobRunSucceeded"):
            for run in event.payload["runs"]:
                found.update({(run["job_run_id"], out["ref"]): out["manifest"]["uri"] for out in run["outputs"]})
        for event in self.of("LotArrived"):
            arrivals = event.payload["arrivals"]
            found.update({(lot["job_run_id"], lot["ref"]): lot["manifest"]["uri"] for lot in arrivals})
        return found


def wants_that_are_open(seen: Evidence) -> list[str]:
    return [f"want {id} of {refs} is {state}" for id, (state, _, refs) in seen.wants.items() if state in OPEN_WANTS]


def wants_that_need_a_person(seen: Evidence) -> list[str]:
    """Nobody cancels here; a derivative want that nobody needs any longer is canceled by itself."""
    return [
        f"want {id} of {refs} is {state}"
        for id, (state, source, refs) in seen.wants.items()
        if state not in (*OPEN_WANTS, "Successful") and not (state == "Canceled" and source == "job run")
    ]


def refs_that_need_a_person(seen: Evidence) -> list[str]:
    return [f"{ref} is {at.state}" for ref, at in seen.canonical.items() if at.state in ("Failed", "UpstreamFailed")]


def leases_held_twice(seen: Evidence) -> list[str]:
    found, holder = [], dict[str, str]()
    for event in seen.events:
        if event.type == "JobRunBuffered":
            for run in event.payload["runs"]:
                for ref in run["refs"]:
                    if ref in holder:
                        found.append(f"{event.seq}: {run['job_run_id']} got {ref}, which {holder[ref]} holds")
                    holder[ref] = run["job_run_id"]
        ended = set(seen.ends(event))
        holder = {ref: run for ref, run in holder.items() if run not in ended} if ended else holder
    return found


def successes_of_fenced_attempts(seen: Evidence) -> list[str]:
    found, running = [], set[str]()
    for event in seen.events:
        if event.type == "JobRunBuffered":
            running.update(run["job_run_id"] for run in event.payload["runs"])
        ended = seen.ends(event)
        if event.type == "JobRunSucceeded":
            found += [f"{event.seq}: {run} had ended, and published" for run in ended if run not in running]
        running.difference_update(ended)
    return found


def refs_published_twice(seen: Evidence) -> list[str]:
    found, published, taints = [], Counter[str](), Counter[str]()
    for event in seen.of("JobRunSucceeded", "TaintCreated"):
        if event.type == "TaintCreated":
            taints.update(event.payload["refs"])
            continue
        for ref in (out["ref"] for run in event.payload["runs"] for out in run["outputs"]):
            published[ref] += 1
            if published[ref] > 1 + taints[ref]:
                found.append(f"{event.seq}: {ref} was published {published[ref]} times, and tainted {taints[ref]}")
    return found


def pointers_to_other_attempts(seen: Evidence) -> list[str]:
    """A live ref shows the last success of it, and a ref with a success that was not tainted since is live."""
    last = {ref: run for run, ref in seen.manifests()}
    return [
        f"{ref} is live by {at.job_run}, and {last.get(ref)} published it last"
        for ref, at in seen.canonical.items()
        if at.state == "Live" and last.get(ref) != at.job_run
    ]


def acknowledgements_without_event(seen: Evidence) -> list[str]:
    known = {("request", event.payload["request_id"]) for event in seen.of("WantCreated")}
    known |= {("taint", event.payload["taint_id"]) for event in seen.of("TaintCreated")}
    for event in seen.of("MetaInvoked"):
        known |= {
            ("operation", key.removeprefix("distOp.").removesuffix(".state")) for key in event.payload.get("puts", ())
        }
    return [
        f"{kind} {id} was acknowledged, and no event has it"
        for kind, id in seen.acknowledged
        if (kind, id) not in known
    ]


def operations_not_ended_once(seen: Evidence) -> list[str]:
    ends = Counter(
        key.removeprefix("distOpHistory.")
        for event in seen.of("MetaInvoked")
        for key in event.payload.get("puts", ())
        if key.startswith("distOpHistory.")
    )
    return [
        f"operation {id} ended {ends[id]} times"
        for kind, id in seen.acknowledged
        if kind == "operation" and ends[id] != 1
    ]


def rows_that_are_wrong(seen: Evidence) -> list[str]:
    found, manifests = [], seen.manifests()
    for ref, at in seen.canonical.items():
        asset, _, key = ref.partition("@")
        if at.state == "Live" and asset in ROWS:
            values = seen.values(manifests[at.job_run or "", ref])
            if values != sorted(ROWS[asset](int(key))):
                found.append(f"{ref} reads as {str(values)[:300]}")
    return found


def files_that_are_in_no_lot(seen: Evidence) -> list[str]:
    found, manifests = [], seen.manifests()
    for day, values in seen.landed.items():
        ref = f"arrived@{day}"
        at = seen.canonical.get(ref, Canonical(None, None))
        read = seen.values(manifests[at.job_run or "", ref]) if at.state == "Live" else []
        if read != sorted(values):
            found.append(f"{ref} reads as {read}, and {sorted(values)} have landed")
    return found


QUESTIONS: Final[tuple[Callable[[Evidence], list[str]], ...]] = (
    wants_that_are_open,
    wants_that_need_a_person,
    refs_that_need_a_person,
    leases_held_twice,
    successes_of_fenced_attempts,
    refs_published_twice,
    pointers_to_other_attempts,
    acknowledgements_without_event,
    operations_not_ended_once,
    rows_that_are_wrong,
    files_that_are_in_no_lot,
)


def judged(seen: Evidence) -> list[str]:
    """Each violation, with the question that found it."""
    return [f"{question.__name__}: {found}" for question in QUESTIONS for found in question(seen)]


def lost_job_runs(seen: Evidence) -> int:
    return sum(len(event.payload["failures"]) for event in seen.of("JobRunLost"))


Sql = Callable[[str], list[tuple[Any, ...]]]


def evidence(
    sql: Sql, files: S3FileSystem, acknowledged: Sequence[tuple[str, str]], landed: Mapping[str, list[int]]
) -> Evidence:
    """Read the tables by `sql`, and the bucket by `files`."""
    events = sql("SELECT seq, type, payload FROM databuild_events ORDER BY seq")
    refs_of: dict[int, list[str]] = {}
    for want, ref in sql("SELECT w.want_id, r.ref FROM databuild_want_refs w JOIN databuild_refs r ON r.id = w.ref_id"):
        refs_of.setdefault(want, []).append(ref)
    wants = sql("SELECT id, want_id, state, source FROM databuild_wants")
    canonical = sql(
        "SELECT r.ref, r.state, j.job_run_id FROM databuild_refs r LEFT JOIN databuild_instances i ON i.id = r.canonical_id "
        "LEFT JOIN databuild_job_runs j ON j.id = i.job_run_id"
    )

    def values(manifest: str) -> list[int] | str:
        folder, _, _ = manifest.removeprefix("s3://").rpartition("/")
        try:
            with files.open_input_stream(f"{folder}/{manifest.rpartition('/')[2]}") as stream:
                listed = [entry["uri"] for entry in json.loads(stream.read())["files"]]
            # A file of ours is named relative to its manifest, one that landed by its url.
            paths = [uri.removeprefix("s3://") if "://" in uri else normpath(f"{folder}/{uri}") for uri in listed]
            return sorted(v for path in paths for v in pq.read_table(path, filesystem=files)["value"].to_pylist())
        except OSError as error:
            return f"cannot be read: {error}"

    return Evidence(
        [Event(seq, type, json.loads(payload)) for seq, type, payload in events],
        {want: (state, source, tuple(refs_of.get(id, ()))) for id, want, state, source in wants},
        {ref: Canonical(state, run) for ref, state, run in canonical},
        values,
        acknowledged,
        landed,
    )
