"""What every decision may look at: the state, the time, fresh ids, and what partitions exist."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from databuild_dagster.model.catalog import Catalog
from databuild_dagster.model.datasets import DatasetSpec, dataset_from
from databuild_dagster.model.errors import (
    DuplicateRef,
    InstanceExists,
    InvalidRequest,
    NotFound,
    Refused,
    StaleJobRun,
    UnknownAsset,
    UnknownPartition,
)
from databuild_dagster.model.refs import PartitionRef, checked_job_run_id, derive_partition_uuid
from databuild_dagster.model.rows import DatasetRow, InstanceRow, JobRunRow, RefRow
from databuild_dagster.model.states import JobRunState
from databuild_dagster.model.view import View
from databuild_dagster.model.wording import few_of

#: First delay of the exponential backoff of failed attempts, and its ceiling (SPEC 6.8).
BACKOFF_SECONDS = 5.0
MAX_BACKOFF_SECONDS = 600.0
#: Attempts of a ref since it was last live or tainted before it fails for good (SPEC 6.8).
MAX_ATTEMPTS = 3
#: Dep misses in a row before a ref fails for good (SPEC 6.7).
MAX_MISSES = 20


@dataclass
class Claim:
    """What a Dagster run gets for each ref it asked for (SPEC 8.1)."""

    launch_id: str
    #: Ref to the job run of this claim that builds it.
    build: dict[str, str] = field(default_factory=dict)
    #: Ref to the job run that is building it, or waits for its inputs.
    join: dict[str, str] = field(default_factory=dict)
    #: Ref to the live instance.
    reuse: dict[str, str] = field(default_factory=dict)
    #: Ref to the reason.
    refused: dict[str, str] = field(default_factory=dict)


@dataclass
class Deciding:
    """The surroundings of one decision."""

    view: View
    now: float
    new_id: Callable[[], str]
    catalog: Catalog
    #: Filled by the decision about `ClaimRefs`.
    claim: Claim | None = None
    #: What was looked up of datasets; no decision changes them and looks again.
    _datasets: dict[str, DatasetSpec | None] = field(default_factory=dict)

    def dataset_of(self, asset: str) -> DatasetSpec | None:
        """What is registered under a name now."""
        if asset not in self._datasets:
            row = self.view.datasets([asset]).get(asset)
            self._datasets[asset] = None if row is None or row.removed else spec_of(row)
        return self._datasets[asset]

    def check_wantable(self, text: str) -> None:
        """Raises `InvalidRef`, `UnknownAsset` or `UnknownPartition` (SPEC 5.7)."""
        check_wantable(text, self.dataset_of, self.view.asset_names, self.catalog)

    def why_not_wantable(self, text: str) -> str | None:
        try:
            self.check_wantable(text)
        except Refused as refused:
            return refused.message
        return None

    def existing_refs(self, texts: Iterable[str]) -> dict[str, RefRow | None]:
        """Rows of refs that must be well formed and wantable; None where nothing ever happened to one."""
        checked = list(texts)
        no_duplicates(checked)
        rows = self.view.refs(checked)
        for text in checked:
            if text not in rows:
                self.check_wantable(text)
        return {text: rows.get(text) for text in checked}

    def job_runs(self, job_run_ids: Iterable[str]) -> dict[str, JobRunRow]:
        """At least one, each once. Raises `InvalidRequest`, `NotFound`."""
        wanted = list(job_run_ids)
        if not wanted or len(set(wanted)) != len(wanted):
            why = "one is named twice" if wanted else "it names none"
            raise InvalidRequest(what="the list of job runs", value=wanted, why=why)
        rows = self.view.job_runs(wanted)
        for job_run_id in wanted:
            if job_run_id not in rows:
                raise NotFound(kind="job run", name=job_run_id)
        return rows

    def running_job_runs(self, job_run_ids: Iterable[str]) -> dict[str, JobRunRow]:
        """Fencing: who is not running any more reports in vain (SPEC 6.9). Raises `StaleJobRun` too."""
        rows = self.job_runs(job_run_ids)
        for row in rows.values():
            if row.state is not JobRunState.RUNNING:
                raise StaleJobRun(job_run_id=row.job_run_id, state=row.state.value)
        return rows

    def check_new_identities(self, job_run_ids: Iterable[tuple[str, str]], launch_id: str | None = None) -> None:
        """Of (job run id, a ref it is to build), and of their launch: no instance is ever overwritten (SPEC 2.2).

        Raises `InvalidRequest`, `InstanceExists`.
        """
        named = [(checked_job_run_id(job_run_id), ref) for job_run_id, ref in job_run_ids]
        taken = self.view.ids_taken(launch_id, [job_run_id for job_run_id, _ in named])
        if launch_id in taken:
            raise InvalidRequest(what="launch id", value=launch_id, why="a launch has it already")
        for job_run_id, ref in named:
            if job_run_id in taken:
                raise InstanceExists(uuid=derive_partition_uuid(job_run_id, ref), ref=ref)
            taken.add(job_run_id)

    def outputs(self, job_runs: Iterable[JobRunRow]) -> dict[int, list[tuple[RefRow, InstanceRow]]]:
        """Refs and instances of job runs, by the job run's row id."""
        found: dict[int, list[tuple[RefRow, InstanceRow]]] = {job_run.id: [] for job_run in job_runs}
        instances = self.view.instances_of_job_runs(found)
        refs = self.view.refs_by_id(instance.ref_id for instance in instances)
        for instance in instances:
            found[instance.job_run_id].append((refs[instance.ref_id], instance))
        return found

    def builder_of(self, ref: RefRow) -> str:
        """The job run that made the canonical instance of a ref."""
        instance = self.view.instances_by_id([ref.canonical_id or 0])[ref.canonical_id or 0]
        return self.view.job_runs_by_id([instance.job_run_id])[instance.job_run_id].job_run_id

    def backoff(self, attempts: int) -> float:
        """When to try again after that many attempts (SPEC 6.8)."""
        return self.now + min(BACKOFF_SECONDS * 2.0 ** max(attempts - 1, 0), MAX_BACKOFF_SECONDS)


#: What to do about a name where none is registered at all.
LOAD_IT = "Load a code location that defines it first: `databuild tick` does."


def check_wantable(
    text: str,
    dataset_of: Callable[[str], DatasetSpec | None],
    asset_names: Callable[[], Iterable[str]],
    catalog: Catalog,
) -> None:
    """Whether something can build a ref, or it is a source's (SPEC 5.7).

    Raises `InvalidRef`; `UnknownAsset`, with the nearest names that exist; `UnknownPartition`.
    """
    ref = PartitionRef.parse(text)
    spec = dataset_of(ref.asset)
    if spec is None:
        raise UnknownAsset(asset=ref.asset, suggestion=what_there_is(ref.asset, asset_names()))
    if why := catalog.why_not(spec, ref.partition_key):
        raise UnknownPartition(ref=text, why=why, asset=ref.asset)


def near_names(name: str, names: Iterable[str]) -> str:
    """Those that look like it; empty where none does."""
    return " or ".join(difflib.get_close_matches(name, sorted(names), n=3))


def what_there_is(asset: str, names: Iterable[str], otherwise: str = LOAD_IT) -> str:
    """What to do about a name that nobody has registered: those that look like it, else some that there are."""
    registered = sorted(names)
    if near := near_names(asset, registered):
        return f"Did you mean {near}?"
    if registered:
        return f"There {'is' if len(registered) == 1 else 'are'} {few_of(registered)}."
    return otherwise


def spec_of(row: DatasetRow) -> DatasetSpec:
    """The registration behind a dataset's row."""
    return dataset_from(row.spec)


def no_duplicates(refs: Iterable[str]) -> None:
    """Raises `DuplicateRef`."""
    seen: set[str] = set()
    for ref in refs:
        if ref in seen:
            raise DuplicateRef(ref=ref)
        seen.add(ref)
