"""Answers to requests, each for a ref; an answer other than a build becomes a fact of the ledger (rules 8.1, 8.3)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from databuild_dagster.model import commands as c
from databuild_dagster.model import events as e
from databuild_dagster.model import pauses
from databuild_dagster.model.coordination import (
    FIRST_OUTCOME,
    Answer,
    DelegationOutcome,
    answer_of,
    while_paused,
    why_refused,
)
from databuild_dagster.model.decide.context import Deciding
from databuild_dagster.model.errors import Contradiction
from databuild_dagster.model.fold.demands import DERIVATIVE
from databuild_dagster.model.fold.react import CLAIMANT
from databuild_dagster.model.refs import Ref, asset_of, derive_partition_uuid
from databuild_dagster.model.rows import InstanceRow, JobRunRow, RefRow
from databuild_dagster.model.states import InstanceState
from databuild_dagster.model.view import Openness

#: Sources of wants that follow an earlier request, which has the answer.
_FOLLOWING = (CLAIMANT, DERIVATIVE)
_WAITS = DelegationOutcome.WAITING.value
#: The beginnings of reasons of taints that say nothing about rows: their refs are built again.
BY_REQUEST, BY_DAGSTER_RUN = "rebuilt for request", "opened by Dagster run"


@dataclass
class Answers:
    """The answers to a request, an answer for each of its refs, in their order."""

    by_ref: dict[Ref, Answer] = field(default_factory=dict)
    #: Refs that have to be tainted before they can be built.
    opened: list[Ref] = field(default_factory=list)
    #: Ref to its canonical instance, and to the job run that made that, unless the answer is a build.
    instances: dict[Ref, InstanceRow] = field(default_factory=dict)
    job_runs: dict[Ref, str] = field(default_factory=dict)
    #: Ref to the pause for which it is refused. The ledger does not have such refusals: there may be no instance to name.
    paused: dict[Ref, pauses.PauseInForce] = field(default_factory=dict)

    def given(self, answer: Answer) -> list[Ref]:
        """The refs with this answer."""
        return [ref for ref, given in self.by_ref.items() if given is answer]

    def why_refused(self, ref: Ref) -> str:
        if ref in self.paused:
            return pauses.why_refused(ref, self.paused[ref])
        instance = self.instances[ref]
        return why_refused(ref, instance.state, instance.reason)


def answer(
    rows: Mapping[Ref, RefRow | None],
    deciding: Deciding,
    *,
    opens: bool = False,
    rebuild_before: float | None = None,
    fresh: bool = False,
    paused: Mapping[Ref, pauses.PauseInForce] = MappingProxyType({}),
) -> Answers:
    """The answers of `answer_of`, with three exceptions.

    `opens` builds failed refs again, and does not wait for a backoff. `rebuild_before` builds every ref again whose instance is
    older; a younger instance is a result of the rebuild. `fresh` builds live refs of other code again. No `paused` ref is
    built, or waited for.
    """
    answers = Answers()
    if not rows:
        return answers
    ids = [row.canonical_id for row in rows.values() if row is not None and row.canonical_id is not None]
    instances = deciding.view.instances_by_id(ids)
    builders = deciding.view.job_runs_by_id(instance.job_run_id for instance in instances.values())
    for ref, row in rows.items():
        state = None if row is None else _sound_state(row, instances)
        backs_off = row is not None and row.retry_at is not None and row.retry_at > deciding.now
        found, is_opened = answer_of(state, backs_off=backs_off and not opens), False
        if found is not Answer.BUILD:
            assert row is not None, "a missing ref is built"
            instance = instances[row.canonical_id or 0]
            again = rebuild_before is not None and instance.created_at < rebuild_before
            again = again or (fresh and found is Answer.REUSE and _is_outdated(ref, instance, builders, deciding))
            is_opened = (found is Answer.REFUSE and (opens or again)) or (found is Answer.REUSE and again)
        given = Answer.BUILD if is_opened else found
        if ref in paused and while_paused(given, state) is not given:
            answers.paused[ref], given = paused[ref], Answer.REFUSE
        elif is_opened:
            answers.opened.append(ref)
        elif given is not Answer.BUILD:
            answers.instances[ref] = instance
            answers.job_runs[ref] = builders[instance.job_run_id].job_run_id
        answers.by_ref[ref] = given
    return answers


def _sound_state(row: RefRow, instances: Mapping[int, InstanceRow]) -> InstanceState | None:
    """The state of a ref. Raises `Contradiction` if its canonical instance has a different state (rule 3.5)."""
    if row.canonical_id is not None and (found := instances[row.canonical_id]).state is not row.state:
        raise Contradiction(
            seq=found.created_seq,
            entity=row.ref,
            state=str(row.state),
            on="its canonical instance",
            why=f"that is {found.state}",
        )
    return row.state


def _is_outdated(ref: Ref, instance: InstanceRow, builders: Mapping[int, JobRunRow], deciding: Deciding) -> bool:
    """Whether other code built it; data from outside was built by no code."""
    spec = deciding.dataset_of(asset_of(ref))
    if spec is None or instance.origin is not None:
        return False
    return spec.is_of_other_code(instance.code_version, builders[instance.job_run_id].code)


def opened(
    answers: Answers, reason: str, deciding: Deciding, *, uuids: tuple[str, ...] = (), of_code: bool = False
) -> list[e.Fact]:
    """The taint of refs that are built again, and of further instances; `of_code` if other code is the only reason."""
    if not answers.opened and not uuids:
        return []
    refs = tuple(answers.opened)
    return [e.TaintCreated(taint_id=deciding.new_id(), refs=refs, reason=reason, uuids=uuids, of_code=of_code)]


def delegated(requester: str, answers: Answers, deciding: Deciding) -> list[e.Fact]:
    """The delegations to foreign builds, without delegations that the ledger has."""
    if not answers.instances:
        return []
    rows = {ref: row.id for ref, row in deciding.view.refs(answers.instances).items()}
    known = deciding.view.delegations(requester, rows.values())
    facts = tuple(
        e.DelegationFact(
            ref=ref,
            kind=kind.value,
            job_run_id=answers.job_runs[ref],
            uuid=answers.instances[ref].uuid,
            reason=answers.why_refused(ref) if kind is Answer.REFUSE else "",
        )
        for ref, kind in answers.by_ref.items()
        if kind is not Answer.BUILD and ref not in answers.paused and known.get(rows[ref]) != FIRST_OUTCOME[kind].value
    )
    return [e.PartitionDelegated(requester=requester, delegations=facts)] if facts else []


def joining(leased: Mapping[Ref, str], deciding: Deciding, *, for_first: bool = False) -> list[e.Fact]:
    """Requests from before the lease join its job run: of all requests for a ref, a single request builds it (rule 8.4).

    `leased` is ref to the job run that takes the lease: a Dagster run's, or, `for_first`, a job run of the orchestrator, which builds
    for the first request. Left out are wants of other Dagster runs and of job runs, which get their answers there, and wants
    that a taint has opened again, which had theirs.
    """
    view = deciding.view
    least = 1 if for_first else 0
    rows = {row.id: ref for ref, row in view.refs(leased).items() if row.n_open_wants > least}
    asked: dict[str, list[int]] = {}
    first: dict[int, str] = {}
    for ref_id, want in view.wants_holding(rows, Openness.OPEN):
        if want.source in _FOLLOWING or want.reopened:
            continue
        if (for_first and first.setdefault(ref_id, want.request_id) != want.request_id) or not for_first:
            asked.setdefault(want.request_id, []).append(ref_id)
    view.meet_delegations(asked)
    facts: list[e.Fact] = []
    for requester, ref_ids in asked.items():
        known = view.delegations(requester, ref_ids)
        joined = tuple(
            _joined(rows[ref_id], leased[rows[ref_id]])
            for ref_id in dict.fromkeys(ref_ids)
            if known.get(ref_id) != _WAITS
        )
        if joined:
            facts.append(e.PartitionDelegated(requester=requester, delegations=joined))
    return facts


def _joined(ref: Ref, job_run_id: str) -> e.DelegationFact:
    uuid = derive_partition_uuid(job_run_id, ref)
    return e.DelegationFact(ref=ref, kind=Answer.JOIN.value, job_run_id=job_run_id, uuid=uuid, reason="")


def give_up_delegations(command: c.GiveUpDelegations, deciding: Deciding) -> list[e.Fact]:
    """No fact when the requester waits for nothing."""
    waiting = deciding.view.waiting_delegations_of(command.requester)
    refs = tuple(
        row.ref for row in deciding.view.refs_by_id(waiting).values() if not command.refs or row.ref in command.refs
    )
    if not refs:
        return []
    return [e.DelegationGivenUp(requester=command.requester, refs=refs, reason=command.reason)]
