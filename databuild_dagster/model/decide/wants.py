"""Wants: their creation and their end (rules 5, 6.10)."""

from collections.abc import Iterable, Mapping
from itertools import islice

from databuild_dagster.model import commands as c
from databuild_dagster.model import events as e
from databuild_dagster.model.decide.context import MAX_NAMES, Deciding, no_duplicates
from databuild_dagster.model.decide.delegations import BY_REQUEST, Answers, answer, delegated, opened
from databuild_dagster.model.decide.returning import set_aside_by_code
from databuild_dagster.model.errors import BeingBuilt, InvalidRequest, NotFound, WaitsForInputs, WantEnded
from databuild_dagster.model.fold.demands import DERIVATIVE
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.rows import NEVER, RefRow, WantRow
from databuild_dagster.model.states import OPEN_WANTS, InstanceState, JobRunState, WantState
from databuild_dagster.model.view import Openness, View
from databuild_dagster.model.wording import has_date

#: Wants that a refusal names, or their requests if they are more.
MAX_HOLDERS = 20
#: The largest that the integer column of each database holds.
MAX_PRIORITY = 2**31 - 1


def create_wants(command: c.CreateWants, deciding: Deciding) -> list[e.Fact]:
    """A request is recorded as a whole or refused."""
    if not command.wants or not all(command.wants):
        raise InvalidRequest(what="the request", value=[list(refs) for refs in command.wants], why="it names no ref")
    expires_at, deadline = _times(command, deciding.now)
    if not abs(command.priority) <= MAX_PRIORITY:
        raise InvalidRequest(what="priority", value=command.priority, why=f"it must be within ±{MAX_PRIORITY:,}")
    texts = [text for refs in command.wants for text in refs]
    no_duplicates(texts)
    for text in texts:
        deciding.check_wantable(text)
    deciding.catalog.require()
    request_id = command.request_id or deciding.new_id()
    rows = deciding.view.refs(texts)
    answers = _answers(command, texts, rows, deciding)
    # A rebuild builds what `--fresh` has set aside, whatever an earlier instance has (rule 4.9).
    set_aside = set_aside_by_code(rows.values(), deciding) if command.rebuild else {}
    uuids = tuple(found.last.uuid for found in set_aside.values())
    of_code = command.fresh and not command.rebuild
    return [
        *opened(answers, f"{BY_REQUEST} {request_id}", deciding, uuids=uuids, of_code=of_code),
        *delegated(request_id, answers, deciding),
        e.WantCreated(
            request_id=request_id,
            wants=tuple(e.WantFact(id=deciding.new_id(), refs=refs) for refs in command.wants),
            source=command.source,
            source_id=command.source_id,
            comment=command.comment,
            priority=command.priority,
            fail_fast=command.fail_fast,
            data_timestamp=command.data_timestamp,
            ttl_seconds=command.ttl_seconds,
            sla_seconds=command.sla_seconds,
            expires_at=expires_at,
            deadline=deadline,
        ),
    ]


def _times(command: c.CreateWants, now: float) -> tuple[float | None, float | None]:
    """(expiry, deadline), None for never. The SLA counts from the data's timestamp if it is given (rule 5.5).

    A time without a date is refused, because it could be recorded but not listed.
    """
    for what, seconds in (("ttl_seconds", command.ttl_seconds), ("sla_seconds", command.sla_seconds)):
        if seconds is not None and not 0 < seconds < NEVER:
            raise InvalidRequest(what=what, value=seconds, why="it must be a positive number of seconds")
    if command.data_timestamp is not None and not has_date(command.data_timestamp):
        why = "it must be a number of seconds since 1970, of a moment in the years 1 to 9999"
        raise InvalidRequest(what="data_timestamp", value=command.data_timestamp, why=why)
    expires_at = _after("ttl_seconds", command.ttl_seconds, now)
    since = now if command.data_timestamp is None else command.data_timestamp
    return expires_at, _after("sla_seconds", command.sla_seconds, since)


def _after(what: str, seconds: float | None, since: float) -> float | None:
    if seconds is None:
        return None
    if not has_date(since + seconds):
        raise InvalidRequest(what=what, value=seconds, why="that ends after the year 9999; leave it out for no end")
    return since + seconds


def _answers(command: c.CreateWants, texts: list[Ref], known: Mapping[Ref, RefRow], deciding: Deciding) -> Answers:
    """Without the missing refs, which are built."""
    rows = {text: known[text] for text in texts if text in known}
    return answer(rows, deciding, rebuild_before=NEVER if command.rebuild else None, fresh=command.fresh)


def cancel_wants(command: c.CancelWants, deciding: Deciding) -> list[e.Fact]:
    """Queued job runs without a further want end by the standing rules; running job runs only with `terminate`.

    A failed want is withdrawn if wants are kept for it: the kept wants end unless they are kept for a further want too (rule 6.14).
    """
    wants = _wants_named(command, deciding)
    withdrawn, kept = _kept_for(wants, deciding.view)
    ending = list({want.id: want for want in [*wants, *kept] if want.state in OPEN_WANTS}.values())
    if not ending and not withdrawn:
        raise WantEnded(want_id=wants[0].want_id, state=wants[0].state.value)
    canceled = e.WantCanceled(
        want_ids=tuple(want.want_id for want in ending),
        reason=command.reason,
        withdrawn=tuple(want.want_id for want in withdrawn),
    )
    facts: list[e.Fact] = [canceled]
    if command.terminate and (ids := _job_runs_only_for(ending, deciding)):
        facts.append(e.JobRunCanceled(job_run_ids=ids, reason=command.reason or "its wants were canceled"))
    return facts


def _kept_for(wants: list[WantRow], view: View) -> tuple[list[WantRow], list[WantRow]]:
    """(failed wants for which wants are kept, and the kept wants that are kept for no further want)."""
    failed = [want.id for want in wants if want.state is WantState.UPSTREAM_FAILED and not want.withdrawn]
    pairs = view.keepings_for(failed)
    if not pairs:
        return [], []
    kept = [want for want in view.wants_kept({keeping for keeping, _ in pairs}) if want.state in OPEN_WANTS]
    keepings = {want.keeping for want in kept if want.keeping is not None}
    withdrawn = {want_id for keeping, want_id in pairs if keeping in keepings}
    served = view.kept_for(keepings)
    others = view.wants_by_id({want_id for _, want_id in served if want_id not in withdrawn})
    needed = {keeping for keeping, want_id in served if want_id in others and not others[want_id].withdrawn}
    return [want for want in wants if want.id in withdrawn], [want for want in kept if want.keeping not in needed]


def expire_wants(command: c.ExpireWants, deciding: Deciding) -> list[e.Fact]:
    """The named wants that are still open and past their TTL (rule 5.5)."""
    wants = _known(command.want_ids, deciding)
    due = tuple(want.want_id for want in wants if want.state in OPEN_WANTS and want.expires_at <= deciding.now)
    return [e.WantExpired(want_ids=due)] if due else []


def miss_slas(command: c.MissSlas, deciding: Deciding) -> list[e.Fact]:
    """The named wants, open or failed, that missed their deadline and have no such event yet (rule 5.5)."""
    wants = _known(command.want_ids, deciding)
    late = tuple(want.want_id for want in wants if want.sla_at is not None and want.sla_at <= deciding.now)
    return [e.WantSlaMissed(want_ids=late)] if late else []


def _known(want_ids: tuple[str, ...], deciding: Deciding) -> list[WantRow]:
    return list(deciding.found(deciding.view.wants(want_ids), want_ids, WantRow).values())


def _wants_named(command: c.CancelWants, deciding: Deciding) -> list[WantRow]:
    named = deciding.view.wants(command.ids)
    of_requests = deciding.view.wants_of_requests([i for i in command.ids if i not in named])
    requests = {want.request_id for want in of_requests}
    for wanted in command.ids:
        if wanted not in named and wanted not in requests:
            raise NotFound(kind="want or request", name=wanted, names=deciding.view.newest_names(WantRow, MAX_NAMES))
    wants = {want.id: want for want in [*named.values(), *of_requests]}
    if not wants:
        raise InvalidRequest(what="the list of wants", value=[], why="it names none")
    return list(wants.values())


def _job_runs_only_for(wants: list[WantRow], deciding: Deciding) -> tuple[str, ...]:
    """Running job runs of which no output is needed after `wants` end."""
    view = deciding.view
    refs = view.refs_by_id(ref_id for _, ref_id in view.refs_of_wants([want.id for want in wants]))
    building = [ref.canonical_id for ref in refs.values() if ref.state is InstanceState.BUILDING]
    instances = view.instances_by_id(i for i in building if i is not None)
    job_runs = view.job_runs_by_id(instance.job_run_id for instance in instances.values())
    outputs = deciding.outputs(row for row in job_runs.values() if row.state is JobRunState.RUNNING)
    needed = _needed({ref.id for of_run in outputs.values() for ref, _ in of_run}, {want.id for want in wants}, view)
    return tuple(
        job_runs[row_id].job_run_id
        for row_id, of_run in outputs.items()
        if needed.isdisjoint(ref.id for ref, _ in of_run)
    )


def _needed(ref_ids: set[int], ended: set[int], view: View) -> set[int]:
    """The refs that have an open want besides `ended`, or that a needed waiting ref misses (rule 6.10).

    A derivative want counts as long as a waiting ref supports it, so the waiting refs are followed instead, level by level.
    """
    wants, needed_for = _behind(ref_ids, view)
    wanted = {ref_id for ref_id, want in wants if want.id not in ended}
    reached = list(wanted)
    while reached:
        found = needed_for.get(reached.pop(), set()) - wanted
        wanted |= found
        reached += found
    return wanted


def _behind(ref_ids: set[int], view: View) -> tuple[list[tuple[int, WantRow]], dict[int, set[int]]]:
    """(ref, want) of the open wants that count themselves, of refs and of their waiters; and what each waiter misses."""
    wants: list[tuple[int, WantRow]] = []
    needed_for: dict[int, set[int]] = {}
    seen, level = set(ref_ids), ref_ids
    while level:
        wants += [(ref_id, want) for ref_id, want in view.wants_holding(level, Openness.OPEN) if _counts_itself(want)]
        pairs = view.waiters(level)
        instances = view.instances_by_id(instance_id for _, instance_id in pairs)
        waiting = [(missing, instances[i]) for missing, i in pairs]
        level = set()
        for missing, instance in waiting:
            if instance.state is InstanceState.UPSTREAM_BUILDING:
                needed_for.setdefault(instance.ref_id, set()).add(missing)
                level.add(instance.ref_id)
        level -= seen
        seen |= level
    return wants, needed_for


def being_built(ref: RefRow, deciding: Deciding) -> BeingBuilt:
    """The refusal of a command about a leased ref: it names the job run, or the wants that hold the lease of a waiting ref."""
    job_run = deciding.builder_of(ref)
    if ref.state is not InstanceState.UPSTREAM_BUILDING:
        return BeingBuilt(ref=ref.ref, job_run=job_run)
    holding = {want.want_id: want.request_id for _, want in _behind({ref.id}, deciding.view)[0]}
    names = holding if len(holding) <= MAX_HOLDERS else dict.fromkeys(holding.values())
    return WaitsForInputs(ref=ref.ref, job_run=job_run, wants=" ".join(islice(names, MAX_HOLDERS)))


def _counts_itself(want: WantRow) -> bool:
    """Whether it needs no waiting ref (rules 6.14, 7.1)."""
    return want.source != DERIVATIVE or bool(want.reopened) or want.keeping is not None


def open_wants(ref_ids: Iterable[int], deciding: Deciding) -> tuple[str, ...]:
    """The ids of the wants that are open for any of the given refs."""
    return tuple(dict.fromkeys(want.want_id for _, want in deciding.view.wants_holding(ref_ids, Openness.OPEN)))
