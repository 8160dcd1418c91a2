"""The surroundings of a decision: the state, the time, fresh ids, and the partitions that exist."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple, TypeVar, cast

from databuild_dagster.model import commands as c
from databuild_dagster.model import errors
from databuild_dagster.model.datasets import NO_KEY, NO_KEYS, Catalog, DatasetSpec, InputSpec, dataset_from
from databuild_dagster.model.errors import Conflict
from databuild_dagster.model.pauses import PauseInForce, in_force, names_of
from databuild_dagster.model.refs import (
    Ref,
    asset_of,
    checked_job_run_id,
    derive_partition_uuid,
    parse_ref,
    partition_key_of,
)
from databuild_dagster.model.removals import left_by
from databuild_dagster.model.rows import (
    DatasetRow,
    InstanceRow,
    JobRunRow,
    LaunchRow,
    RefRow,
    Row,
    TaintRow,
    WantRow,
)
from databuild_dagster.model.states import JobRunState
from databuild_dagster.model.view import View

#: First delay of the exponential backoff of failed attempts, and its ceiling (rule 6.8).
BACKOFF_SECONDS = 5.0
MAX_BACKOFF_SECONDS = 600.0
#: Attempts of a ref since it was last live or tainted before it fails for good (rule 6.8).
MAX_ATTEMPTS = 3
#: Dep misses in a row before a ref fails for good (rule 6.7).
MAX_MISSES = 20
#: Rounds of a decision. The second asks about the refs without a row; a later round has met a changed registration.
MAX_ROUNDS = 10
#: The newest names that a misspelt name is compared with.
MAX_NAMES = 200

R = TypeVar("R", bound=Row)

_KINDS: dict[type[Row], str] = {
    InstanceRow: "instance",
    JobRunRow: "job run",
    LaunchRow: "launch",
    TaintRow: "taint",
    WantRow: "want",
}


@dataclass
class Claim:
    """The answer to a Dagster run for each ref that it asked for (rule 8.1)."""

    launch_id: str
    #: Ref to the job run of this claim that builds it.
    build: dict[Ref, str] = field(default_factory=dict)
    #: Ref to the job run that is building it, or waits for its inputs.
    join: dict[Ref, str] = field(default_factory=dict)
    #: Ref to the live instance.
    reuse: dict[Ref, str] = field(default_factory=dict)
    #: Ref to the reason.
    refused: dict[Ref, str] = field(default_factory=dict)
    #: The refused refs that are paused.
    paused: dict[Ref, PauseInForce] = field(default_factory=dict)


@dataclass
class Deciding:
    """The surroundings of a decision."""

    view: View
    now: float
    new_id: Callable[[], str]
    catalog: CatalogAnswers
    #: Filled by the decision about `ClaimRefs`.
    claim: Claim | None = None
    #: Registrations that were read before; no decision changes a registration and reads it again.
    registered: dict[str, DatasetSpec | None] = field(default_factory=dict)

    def dataset_of(self, asset: str) -> DatasetSpec | None:
        """The present registration of an asset."""
        if asset not in self.registered:
            row = self.view.datasets([asset]).get(asset)
            self.registered[asset] = None if row is None or row.removed else spec_of(row)
        return self.registered[asset]

    def check_wantable(self, ref: Ref) -> None:
        """Raises `InvalidRef`, `UnknownAsset` or `UnknownPartition` (rule 5.7)."""
        check_wantable(ref, self.dataset_of, self.view.asset_names, self.catalog.why_not)

    def existing_refs(self, refs: Iterable[Ref]) -> dict[Ref, RefRow | None]:
        """Rows of refs that must be well formed and wantable; None for a ref without any event."""
        checked = list(refs)
        no_duplicates(checked)
        rows = self.view.refs(checked)
        for ref in checked:
            if ref not in rows:
                self.check_wantable(ref)
        self.catalog.require()
        return {ref: rows.get(ref) for ref in checked}

    def paused(self, refs: Collection[Ref]) -> dict[Ref, PauseInForce]:
        """Each of the refs that nothing may launch now, with its pause (rule 6.13)."""
        return in_force(self.view.pauses(names_of(refs)), refs, self.now)

    def found(self, rows: dict[str, R], names: Iterable[str], row_type: type[Row]) -> dict[str, R]:
        """The rows of `names`. Raises `NotFound`, with near names."""
        for name in names:
            if name not in rows:
                raise errors.NotFound(
                    kind=_KINDS[row_type], name=name, names=self.view.newest_names(row_type, MAX_NAMES)
                )
        return rows

    def job_runs(self, job_run_ids: Iterable[str]) -> dict[str, JobRunRow]:
        """The rows of a list that is not empty and names each id once. Raises `InvalidRequest`, `NotFound`."""
        wanted = list(job_run_ids)
        if not wanted or len(set(wanted)) != len(wanted):
            why = "one is named twice" if wanted else "it names none"
            raise errors.InvalidRequest(what="the list of job runs", value=wanted, why=why)
        return self.found(self.view.job_runs(wanted), wanted, JobRunRow)

    def running_job_runs(self, job_run_ids: Iterable[str]) -> dict[str, JobRunRow]:
        """Fencing: a job run that is not running may not report (rule 6.9). Raises `StaleJobRun` too."""
        rows = self.job_runs(job_run_ids)
        for row in rows.values():
            if row.state is not JobRunState.RUNNING:
                raise errors.StaleJobRun(job_run_id=row.job_run_id, state=row.state.value)
        return rows

    def check_new_identities(self, job_run_ids: Iterable[tuple[str, Ref]], launch_id: str | None = None) -> None:
        """Of (job run id, a ref that it builds), and of their launch: no instance is overwritten (rule 2.2).

        Raises `InvalidRequest`, `InstanceExists`.
        """
        named = [(checked_job_run_id(job_run_id), ref) for job_run_id, ref in job_run_ids]
        taken = self.view.ids_taken(launch_id, [job_run_id for job_run_id, _ in named])
        if launch_id in taken:
            raise errors.InvalidRequest(what="launch id", value=launch_id, why="another launch has it")
        for job_run_id, ref in named:
            if job_run_id in taken:
                raise errors.InstanceExists(uuid=derive_partition_uuid(job_run_id, ref), ref=ref)
            taken.add(job_run_id)

    def outputs(self, job_runs: Iterable[JobRunRow]) -> dict[int, list[tuple[RefRow, InstanceRow]]]:
        """Refs and instances of job runs, by the job run's row id."""
        found: dict[int, list[tuple[RefRow, InstanceRow]]] = {job_run.id: [] for job_run in job_runs}
        instances = self.view.instances_of_job_runs(found)
        refs = self.view.refs_by_id(instance.ref_id for instance in instances)
        for instance in instances:
            found[instance.job_run_id].append((refs[instance.ref_id], instance))
        return found

    def canonical_of(self, ref: RefRow) -> InstanceRow | None:
        """The canonical instance of a ref."""
        return None if ref.canonical_id is None else self.view.instances_by_id([ref.canonical_id])[ref.canonical_id]

    def left_seqs(self, instances: Collection[InstanceRow]) -> dict[int, int]:
        """Instance to the event since which no reader begins with it (`left_by`)."""
        pointings: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for ref_id, seq, instance_id in self.view.pointings({instance.ref_id for instance in instances}):
            pointings[ref_id].append((seq, instance_id))
        moved_by = self.view.moved_by([instance.id for instance in instances])
        return {row.id: left_by(row.id, pointings[row.ref_id], moved_by[row.id]) for row in instances}

    def builder_of(self, ref: RefRow) -> str:
        """The job run that made the canonical instance of a ref."""
        instance = self.canonical_of(ref)
        assert instance is not None, "a ref that is being built has an instance"
        return self.view.job_runs_by_id([instance.job_run_id])[instance.job_run_id].job_run_id

    def backoff(self, attempts: int) -> float:
        """The time of the next attempt after that many (rule 6.8)."""
        return self.now + min(BACKOFF_SECONDS * 2.0 ** max(attempts - 1, 0), MAX_BACKOFF_SECONDS)


def check_wantable(
    ref: Ref,
    dataset_of: Callable[[str], DatasetSpec | None],
    asset_names: Callable[[], Iterable[str]],
    why_not: Callable[[DatasetSpec, str | None], str | None],
) -> None:
    """A ref is wantable if something can build it, or it is a source's (rule 5.7).

    Raises `InvalidRef`; `UnknownAsset`, with near names; `UnknownPartition`.
    """
    # Parsed again, for this is the last check before the log, and callers without mypy may pass any text.
    asset = asset_of(parse_ref(ref))
    spec = dataset_of(asset)
    if spec is None:
        raise errors.UnknownAsset(asset=asset, names=asset_names())
    if why := why_not(spec, partition_key_of(ref)):
        raise errors.UnknownPartition(ref=ref, why=why, asset=asset)


def why_no_input(ref: Ref, needed_by: Ref, refused: errors.Refused) -> str:
    """Why nothing can build an input, as `check_wantable` has refused it, and what to do in code."""
    if isinstance(refused, errors.UnknownAsset):
        return refused.of_input
    key = partition_key_of(ref)
    is_taken_over = key is not None and key == partition_key_of(needed_by)
    if is_taken_over and any(words in refused.message for words in (NO_KEY, NO_KEYS)):
        mapping = f"The key is that of {asset_of(needed_by)}: give this input a partition mapping"
        return f"{refused.message} {mapping}, such as dg.AllPartitionMapping()."
    return refused.message


def spec_of(row: DatasetRow) -> DatasetSpec:
    """The registration behind a dataset's row."""
    return dataset_from(row.spec)


def no_duplicates(refs: Iterable[str]) -> None:
    """Of refs, or of ids. Raises `DuplicateRef`."""
    seen: set[str] = set()
    for ref in refs:
        if ref in seen:
            raise errors.DuplicateRef(ref=ref)
        seen.add(ref)


T = TypeVar("T")


class Question(NamedTuple):
    """Is a key a partition of a dataset? With a source: which keys of the dataset does that partition of the source wake?"""

    dataset: DatasetSpec
    partition_key: str | None
    source: InputSpec | None = None


class Unanswered(Exception):
    """A decision needs answers of the catalog that it does not have."""

    def __init__(self, questions: tuple[Question, ...]) -> None:
        super().__init__(questions)
        self.questions = questions


class CatalogAnswers:
    """The catalog as the decision of a command uses it: answers that it gave before the transaction began (rule 3.3).

    The catalog is Dagster, which may be slow or never answer, and a decision holds the write lock of the log. A decision that
    needs a further answer is made again after the catalog gave it: each round can only add answers. Without an answer a partition is
    assumed to exist, until `require` is called.
    """

    def __init__(self) -> None:
        #: By asset, partition key and source: the registration that the catalog was asked about, and its answer.
        self._known: dict[tuple[str, str | None, InputSpec | None], tuple[DatasetSpec, Any]] = {}
        self._open: list[Question] = []
        self._failed: tuple[Question, Exception] | None = None

    def why_not(self, dataset: DatasetSpec, partition_key: str | None) -> str | None:
        """As `Catalog.why_not`."""
        return cast("str | None", self._answer(Question(dataset, partition_key), None))

    def woken(self, dataset: DatasetSpec, source: InputSpec, partition_key: str | None) -> tuple[str | None, ...]:
        """As `Catalog.woken`."""
        return cast("tuple[str | None, ...]", self._answer(Question(dataset, partition_key, source), ()))

    def _answer(self, question: Question, assumed: object) -> object:
        dataset, key, source = question
        asked_about, answer = self._known.get((dataset.asset, key, source), (None, None))
        if asked_about == dataset:
            return answer
        self._open.append(question)
        return assumed

    def require(self) -> None:
        """Raises `Unanswered` if an answer was assumed."""
        if self._open:
            questions, self._open = tuple(self._open), []
            raise Unanswered(questions)

    def ask(self, catalog: Catalog, questions: Iterable[Question]) -> None:
        """Raises what the catalog raises."""
        for question in questions:
            if self._failed is not None and self._failed[0] == question:
                raise self._failed[1]
            dataset, key, source = question
            answer = catalog.why_not(dataset, key) if source is None else catalog.woken(dataset, source, key)
            self._known[dataset.asset, key, source] = dataset, answer

    def ask_ahead(self, catalog: Catalog, command: c.Command, registered: Mapping[str, DatasetSpec | None]) -> None:
        """Ask about the refs that the decision most likely checks, by registrations that may be old.

        An error of the catalog is raised by `ask`, if the decision needs that answer.
        """
        named = _NAMED.get(type(command))
        if named is None:
            return
        for ref in named(command):
            dataset, key = registered.get(asset_of(ref)), partition_key_of(ref)
            if dataset is None:
                continue
            try:
                self._known[dataset.asset, key, None] = dataset, catalog.why_not(dataset, key)
            except Exception as error:
                self._failed = Question(dataset, key), error
                return


def answered(catalog: Catalog, answers: CatalogAnswers, attempt: Callable[[CatalogAnswers], T]) -> T:
    """The result of an attempt that has every answer which it needs. Raises `Conflict` after `MAX_ROUNDS`."""
    for _ in range(MAX_ROUNDS):
        try:
            return attempt(answers)
        except Unanswered as unanswered:
            questions = unanswered.questions
        answers.ask(catalog, questions)
    raise Conflict(entity=f"the registration of {questions[0].dataset.asset}")


def _missing(command: c.MissDeps | c.BufferMissed) -> Iterable[Ref]:
    return (ref for miss in command.misses for refs in miss.impacted.values() for ref in refs)


#: The refs of a command that have no row, as a rule. For other commands, the catalog is asked only about refs without a row.
_NAMED: dict[type[c.Command], Callable[[Any], Iterable[Ref]]] = {
    c.CreateWants: lambda command: chain.from_iterable(command.wants),
    c.BufferMissed: _missing,
    c.MissDeps: _missing,
    c.ArriveLots: lambda command: (arrival.ref for arrival in command.arrivals),
    c.BorrowInstances: lambda command: (birth.ref for birth in command.births),
    c.PromoteInstances: lambda command: (birth.ref for birth in command.instances),
}
