"""The API: a table of urls, each with its parameters, its function, and the type of its answer.

`ROUTES` has the core's urls; `routes()` adds the features' urls.

The functions answer in the shapes of `--json` (rules 15). The pages call only these functions.
"""

from dataclasses import replace
from functools import cache
from typing import Final

import msgspec

from databuild_dagster.bindings.display.tracebacks import Raised, raised_by
from databuild_dagster.calls.calendar import (
    CalendarShape,
    calendar_of,
    mark_of_state,
    marks_of,
)
from databuild_dagster.calls.contents import Contents, allows_sample, contents_of
from databuild_dagster.calls.plans import Plan
from databuild_dagster.data.read_plan import Moment
from databuild_dagster.engine.why.explain import Explanation, explain_as_of
from databuild_dagster.engine.why.explain import explain as explanation_of
from databuild_dagster.engine.why.job_runs import builds_of, find_job_runs, job_run_report
from databuild_dagster.engine.why.orchestrators import Orchestrator, orchestrators_of
from databuild_dagster.engine.why.partitions import Pause, paused_refs, shown_pause
from databuild_dagster.engine.why.want_report import check_names, check_partition, request_states, want_reports
from databuild_dagster.engine.wording import exactly, when
from databuild_dagster.feature import rows
from databuild_dagster.model.command_ids import bare
from databuild_dagster.model.records import extended
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.model.states import JobRunState, WantState
from databuild_dagster.store.queries.asking import MAX_COUNTED
from databuild_dagster.store.queries.ids import IdKind
from databuild_dagster.store.queries.job_runs import JobRunFilter
from databuild_dagster.store.queries.wants import CutWant, WantFilter
from databuild_dagster.web import assets_page, ledger_pages, numbers_page, plans, search_page, taints_page
from databuild_dagster.web.bounded import (
    MAX_REFS,
    BoundedBuild,
    BoundedCanonical,
    BoundedInstance,
    BoundedJobRunReport,
    BoundedReport,
    bounded_build,
    bounded_canonical,
    bounded_history,
    bounded_job_run_report,
    bounded_report,
)
from databuild_dagster.web.events import Failures, ShownEvent, event_shapes, failures_of
from databuild_dagster.web.graph import MAX_LEVELS, Graph, Lineage, graph_around, lineage_of
from databuild_dagster.web.parameters import MAX_SEQ, choice, flag, moment_past, number, ref, text
from databuild_dagster.web.routes import AS_OF, INSTANCE, ApiRoute, Head
from databuild_dagster.web.state import State, check_foldable, moment_at, queries_at

VERSION: Final = "v1"
MAX_RECORDS: Final = 500
#: Wants, or job runs, that are read for a filter that ended wants and job runs may pass.
MAX_LOOKED_AT: Final = 50_000
#: Events of a command.
MAX_EVENTS_OF_COMMAND: Final = 100


class WantsPage(msgspec.Struct, frozen=True):
    """Wants, newest first; `n` is the number of all that the filters admit, 10,001 for more than 10,000."""

    n: int
    #: How many of the newest wants were read, if the store has more; null if all were read.
    of_newest: int | None
    as_of: Head | None
    wants: list[CutWant]
    #: The wants among them that ended by a failure, and of which every ref is live now.
    repaired: list[str]


class RequestPage(msgspec.Struct, frozen=True):
    """The wants of a want id or request id; the first ten with what they wait for."""

    n: int
    #: Of the request: Received, Executing, Completed, Failed or Canceled.
    state: str
    wants: list[BoundedReport]
    #: As of `WantsPage`, derivative wants among them.
    repaired: list[str]


class ShownPartition(msgspec.Struct, frozen=True):
    """What readers of a ref see; `canonical` is null if the ref is missing."""

    ref: Ref
    state: str | None
    mark: str
    #: The event and the time that the answer is about; null for now.
    as_of: Head | None
    canonical: BoundedCanonical | None
    #: Whether its author lets a few rows be shown.
    shows_rows: bool
    #: Whether its asset subscribes to other assets: the API has the arc.
    is_arc: bool
    paused: Pause | None
    #: The name to resume: the ref, or its whole asset; null if it is not paused.
    paused_by: Ref | None


class CalendarThenShape(CalendarShape):
    """The calendar, and the event and the time that it is about; null for now."""

    as_of: Head | None


class GraphThen(Graph, frozen=True):
    """The graph, and the event and the time that it is about; null for now."""

    as_of: Head | None


class WantedRef(msgspec.Struct, frozen=True):
    """A ref that a want names, with its mark now."""

    ref: Ref
    want: str
    mark: str


class WantRefsPage(msgspec.Struct, frozen=True):
    """A page of the refs of a want or request, of `n`."""

    n: int
    offset: int
    refs: list[WantedRef]


def head(state: State) -> Head:
    """The end of the log."""
    found = state.engine.queries.events.head()
    return Head(found.seq, when(found.at) if found.seq else None)


def orchestrators(state: State) -> list[Orchestrator]:
    """Whether an orchestrator of each code location ticks."""
    engine = state.engine
    return orchestrators_of(engine, engine.queries.datasets.all().values())


def builds(
    state: State,
    ended: bool,
    in_state: str | None,
    job: str | None,
    ref: Ref | None,
    since: float | None,
    limit: int,
) -> list[BoundedBuild]:
    """Job runs, newest first."""
    engine, open_only = state.engine, not ended and in_state is None
    which = JobRunFilter(
        states=() if in_state is None else (JobRunState(in_state),),
        job=job,
        ref=ref,
        since=since,
        of_newest=None if open_only or ref is not None else MAX_LOOKED_AT,
    )
    found = find_job_runs(engine.queries, engine.catalog, which, open_only=open_only, most=limit)
    return [bounded_build(build) for build in builds_of(engine.queries, found)]


def job_run(state: State, name: str) -> BoundedJobRunReport:
    """A job run with its outputs, and who asked for them."""
    return bounded_job_run_report(job_run_report(state.engine.queries, name))


def failures(state: State) -> Failures:
    """The causes of the failures that are not repaired, and the number of all."""
    return failures_of(state.engine.queries)


def events(state: State, before: int | None, limit: int) -> list[ShownEvent]:
    """The last events, newest first."""
    head = state.engine.queries.events.head().seq
    last = head if before is None else min(before - 1, head)
    first = max(last - limit, 0)
    return state.events(first, last - first)[::-1]


def log(state: State, after: int, limit: int) -> list[ShownEvent]:
    """The events after a seq, oldest first."""
    return state.events(after, limit)


def command(state: State, id: str) -> list[ShownEvent]:
    """The first events of a command."""
    queries = state.engine.queries
    return event_shapes(queries, queries.events.of_command(bare(id))[:MAX_EVENTS_OF_COMMAND])


def calendar(
    state: State, dataset: str, within: str | None, offset: int, find: str | None, as_of: int | None
) -> CalendarThenShape:
    """The calendar of the partitions that a dataset has now, in their states of now or when `as_of` was the last event."""
    engine = state.engine
    spec, then = engine.queries.datasets.known(dataset), moment_at(state, as_of)
    with queries_at(state, then) as queries:
        now = engine.clock()
        found = calendar_of(queries, spec, state.instance, now, within=within or "", offset=offset, find=find or "")
    return {**found, "as_of": _head_of(then)}


def _head_of(then: Moment) -> Head | None:
    """Its time is exact, so that it means the same moment if it is asked for again."""
    return None if then.seq is None or then.at is None else Head(then.seq, exactly(then.at))


def partition(state: State, ref: Ref, as_of: int | None) -> ShownPartition:
    """What readers of a ref see, now or when `as_of` was the last event."""
    engine = state.engine
    queries = engine.queries
    check_partition(queries, engine.catalog, ref)
    then = moment_at(state, as_of)
    found = (queries.canonical.of([ref]) if then.seq is None else queries.canonical.at([ref], then.seq))[ref]
    pause = paused_refs(queries, [ref], then.seq, then.at).get(ref)
    state_now, now = None if found.state is None else found.state.value, then.seq is None
    return ShownPartition(
        ref,
        state_now,
        marks_of(queries, [ref])[ref] if now else mark_of_state(found.state, is_wanted=False),
        _head_of(then),
        None if found.state is None else bounded_canonical(queries, found, then.seq),
        allows_sample(queries, asset_of(ref)),
        queries.datasets.is_arc(asset_of(ref)),
        None if pause is None else shown_pause(pause),
        None if pause is None else pause.resumed_by,
    )


def explain(state: State, name: str, as_of: int | None) -> Explanation:
    """Why a ref, a want or a request is or is not being built, or was not when `as_of` was the last event."""
    then = moment_at(state, as_of)
    check_foldable(then)
    if then.seq is None or then.at is None:
        return explanation_of(state.engine, name)
    return explain_as_of(state.engine, name, then.seq, then.at)


def history(state: State, ref: Ref, limit: int, as_of: int | None) -> list[BoundedInstance]:
    """The newest instances of a ref, oldest first, now or when `as_of` was the last event."""
    engine = state.engine
    check_partition(engine.queries, engine.catalog, ref)
    with queries_at(state, moment_at(state, as_of)) as queries:
        return bounded_history(queries, ref, limit)


def lineage(state: State, instance: str) -> Lineage:
    """The inputs and the consumers of an instance."""
    queries = state.engine.queries
    return lineage_of(queries, queries.ids.full(IdKind.INSTANCE, instance))


def raised(state: State, job_run: str) -> Raised:
    """What a failed job run raised, with the frames of its author's code marked, from the log of its Dagster run."""
    queries = state.engine.queries
    run = queries.job_runs.get(queries.ids.full(IdKind.JOB_RUN, job_run))
    assert run is not None, "the id is one of a job run"
    return raised_by(state.instance(), run)


def contents(state: State, instance: str) -> Contents:
    """The files and the columns of an instance, from its manifest."""
    queries = state.engine.queries
    return contents_of(queries, queries.ids.full(IdKind.INSTANCE, instance))


def wants(
    state: State,
    open: bool,
    derivative: bool,
    ref: Ref | None,
    dataset: str | None,
    in_state: str | None,
    source: str | None,
    limit: int,
    as_of: int | None,
) -> WantsPage:
    """Wants, newest first, now or when `as_of` was the last event."""
    engine, then = state.engine, moment_at(state, as_of)
    which = WantFilter(
        open_only=open,
        derivative=derivative or source is not None,
        ref=ref,
        asset=dataset,
        states=() if in_state is None else (WantState(in_state),),
        source=source,
        seq=then.seq,
    )
    if ref is None and (not open or then.seq is not None):
        which = replace(which, after_id=engine.queries.wants.before_newest(MAX_LOOKED_AT, then.seq))
    found = engine.queries.wants.newest_cut(which, most=limit, most_refs=MAX_REFS)
    if not found:
        check_names(engine.queries, engine.catalog, which)
    n = len(found) if len(found) < limit else engine.queries.wants.count(which, MAX_COUNTED + 1)
    of_newest = None if which.after_id is None else MAX_LOOKED_AT
    repaired = engine.queries.wants.repaired([want.id for want in found]) if then.seq is None else []
    return WantsPage(n, of_newest, _head_of(then), found, repaired)


def want(state: State, name: str) -> RequestPage:
    """A want or a request, with what it waits for down to the first cause."""
    found, reports = want_reports(state.engine, name)
    (request_state,) = request_states(state.engine.queries, found).values()
    shown = [bounded_report(report) for report in reports]
    named = [id for report in shown for id in (report.id, *(other.id for other in report.derivative_wants))]
    return RequestPage(len(found), request_state.value, shown, state.engine.queries.wants.repaired(named))


def graph(state: State, instance: str, levels: int, as_of: int | None) -> GraphThen:
    """The graph of instances around an instance, now or when `as_of` was the last event."""
    queries = state.engine.queries
    uuid = queries.ids.full(IdKind.INSTANCE, instance)
    then = moment_at(state, as_of)
    found = graph_around(queries, uuid, levels, then.seq)
    return extended(GraphThen, found, as_of=_head_of(then))


def want_refs(state: State, name: str, offset: int, limit: int) -> WantRefsPage:
    """The refs of a want or request, in the order of the wants."""
    queries = state.engine.queries
    n, found = queries.wants.refs_of(queries.ids.full(IdKind.WANT, name), limit, offset)
    marks = marks_of(queries, dict.fromkeys(one.ref for one in found))
    return WantRefsPage(n, offset, [WantedRef(one.ref, one.want_id, marks[one.ref]) for one in found])


_LIMIT: Final = number("limit", "The number of records at most.", 100, 1, MAX_RECORDS)

ROUTES: Final = (
    ApiRoute("/head", "The end of the event log.", head, Head),
    ApiRoute("/orchestrators", "The orchestrators of the code locations.", orchestrators, list[Orchestrator]),
    ApiRoute(
        "/builds",
        "The open job runs, newest first; with `ended` or `in_state` also those among the newest 50,000 that ended.",
        builds,
        list[BoundedBuild],
        (
            flag("ended", "Also job runs that have ended."),
            choice("in_state", "Only job runs in this state, open or ended.", [found.value for found in JobRunState]),
            text("job", "Only runs of this job."),
            ref("ref", "Only job runs that built this ref, or tried to."),
            moment_past("since", "Only those that ended from this time on, or began if they have not ended."),
            _LIMIT,
        ),
    ),
    ApiRoute(
        "/job_run",
        "A job run with its outputs, and who asked for them.",
        job_run,
        BoundedJobRunReport,
        (text("name", "The id of a job run, or its end.", required=True),),
    ),
    ApiRoute(
        "/raised",
        "What a failed job run raised, from the log of its Dagster run.",
        raised,
        Raised,
        (text("job_run", "The id of a job run, or its end.", required=True),),
    ),
    ApiRoute("/failures", "The causes of the failures that are not repaired.", failures, Failures),
    ApiRoute(
        "/events",
        "The last events of the log, newest first.",
        events,
        list[ShownEvent],
        (number("before", "Only events before this seq.", None, 1, MAX_SEQ), _LIMIT),
    ),
    ApiRoute(
        "/log",
        "The events after a seq, oldest first.",
        log,
        list[ShownEvent],
        (number("after", "The seq of the last event that is known.", 0, 0, MAX_SEQ), _LIMIT),
    ),
    ApiRoute(
        "/command",
        "The events that a command recorded, oldest first; none for an unknown command.",
        command,
        list[ShownEvent],
        (text("id", "The id of the command.", required=True),),
    ),
    ApiRoute(
        "/stream",
        "Follow the log from a seq, as server-sent events; the id of each is its seq.",
        log,
        ShownEvent,
        (number("after", "The seq of the last event that is known. By default the end of the log.", None, 0, MAX_SEQ),),
        is_stream=True,
    ),
    *assets_page.ROUTES,
    *numbers_page.ROUTES,
    *search_page.ROUTES,
    *taints_page.ROUTES,
    ApiRoute(
        "/calendar",
        "The partitions of a dataset as a calendar.",
        calendar,
        CalendarThenShape,
        (
            text("dataset", "The name of the asset.", required=True),
            text("within", "Only partitions whose keys begin so, such as 2024-01."),
            number(
                "offset", "The number of partitions before the first, for keys that are no dates.", 0, 0, 10_000_000
            ),
            text("find", "A partition key or a part of one: the page with the first partition that has it."),
            AS_OF,
        ),
    ),
    ApiRoute(
        "/partition",
        "What readers of a ref see.",
        partition,
        ShownPartition,
        (
            ref("ref", "The partition.", required=True),
            AS_OF,
        ),
    ),
    ApiRoute(
        "/explain",
        "Why a ref, a want or a request is or is not being built.",
        explain,
        Explanation,
        (text("name", "A ref, or the id of a want or request.", required=True), AS_OF),
    ),
    ApiRoute(
        "/history",
        "The newest instances of a ref, oldest first.",
        history,
        list[BoundedInstance],
        (ref("ref", "The partition.", required=True), _LIMIT, AS_OF),
    ),
    ApiRoute(
        "/lineage",
        "The inputs and the consumers of an instance.",
        lineage,
        Lineage,
        (text("instance", "The uuid, or its end.", required=True),),
    ),
    ApiRoute(
        "/contents",
        "The files and the columns of an instance.",
        contents,
        Contents,
        (text("instance", "The uuid, or its end.", required=True),),
    ),
    ApiRoute(
        "/wants",
        "Wants, newest first.",
        wants,
        WantsPage,
        (
            flag("open", "Only wants that have not ended."),
            flag("derivative", "Also wants that job runs recorded for inputs."),
            ref("ref", "Only wants that name this ref."),
            text("dataset", "Only wants for partitions of this asset."),
            choice("in_state", "Only wants in this state.", [found.value for found in WantState]),
            text("source", "Only wants of this source, such as user, schedule or arc."),
            _LIMIT,
            AS_OF,
        ),
    ),
    ApiRoute(
        "/want",
        "A want or a request, with what it waits for.",
        want,
        RequestPage,
        (text("name", "The id of a want or request, or its end.", required=True),),
    ),
    ApiRoute(
        "/plan",
        "What a build of some partitions would do.",
        plans.plan,
        Plan,
        (plans.REFS,),
        plan=plans.QUESTION,
    ),
    ApiRoute(
        "/graph",
        "The graph of instances around one.",
        graph,
        GraphThen,
        (INSTANCE, number("levels", "The steps on both sides.", 2, 1, MAX_LEVELS), AS_OF),
    ),
    ApiRoute(
        "/want_refs",
        "The refs of a want or request, in pages.",
        want_refs,
        WantRefsPage,
        (
            text("name", "The id of a want or request, or its end.", required=True),
            number("offset", "The number of refs before the first.", 0, 0, 10_000_000),
            number("limit", "The number of refs at most.", 50, 1, 500),
        ),
    ),
    *ledger_pages.ROUTES,
)


@cache
def routes() -> tuple[ApiRoute, ...]:
    """The urls of the core and of the features."""
    return (*ROUTES, *rows(lambda feature: feature.routes))


@cache
def route_names() -> dict[str, ApiRoute]:
    """The urls by their names: `want_refs` is `/want_refs`."""
    return {route.path.removeprefix("/"): route for route in routes()}
