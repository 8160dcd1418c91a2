"""The pages: a table of urls, each with its parameters, its template, and the answers of the API that it shows.

A page of the core links to a page of a feature only if that page exists (`has_page` in templates).
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from databuild_dagster.engine.why.history import one_before
from databuild_dagster.engine.wording import json_of
from databuild_dagster.feature import rows
from databuild_dagster.model.errors import NotFound
from databuild_dagster.model.refs import Ref, asset_of, partition_key_of
from databuild_dagster.model.states import OPEN_WANTS, WantState
from databuild_dagster.web import (
    assets_page,
    builds_page,
    ledger_pages,
    now_page,
    numbers_page,
    plan_page,
    search_page,
    taints_page,
)
from databuild_dagster.web.actions import actions
from databuild_dagster.web.api import ROUTES, route_names
from databuild_dagster.web.drawing import drawn
from databuild_dagster.web.graph import MAX_LEVELS
from databuild_dagster.web.parameters import read_parameters, ref, text
from databuild_dagster.web.rendering import Urls, counted, make_environment
from databuild_dagster.web.routes import Ask, Page, or_error, parameters_of
from databuild_dagster.web.state import MAX_FOLDED, State

#: Wants on the page of a partition.
MAX_WANTS_OF_REF: Final = 20
#: Instances on it; a partition that is built every five minutes has a hundred thousand in a year.
MAX_INSTANCES: Final = 100
#: The numbers of levels that the page of a graph offers.
LEVELS: Final = (1, 2, 3, 5, 10, 20, MAX_LEVELS)
#: Entries of the navigation that are always seen; the others are in a list that opens.
N_SHOWN: Final = 5
#: The parameter of every page with the id of the command that led there.
DONE: Final = text("done", "The id of the command that led there.")


class Pages:
    """Renders pages over a build state."""

    def __init__(self, state: State, path_prefix: str, mount: str, *, is_read_only: bool = False) -> None:
        self._ask = _Answers(state)
        self.urls = Urls(path_prefix, mount)
        self._environment = make_environment(
            self.urls,
            folders=list(dict.fromkeys(page.folder for page in pages() if page.folder is not None)),
            takes_away={action.name for action in actions() if action.takes_away},
            named=None if (served := state.environment) is None else served.name,
        )
        self._environment.globals.update(counted=counted, may_act=not is_read_only, has_page=_has_page, n_shown=N_SHOWN)
        self._state = state
        #: Of the last page: a template that is no page asks the build state nothing, which may be in trouble.
        self._frame: dict[str, Any] = {"marks": [], "navigation": navigation()}

    def render(self, page: Page, values: dict[str, Any], query: str, done: str | None = None) -> str:
        """The HTML of a page, with the events of the command that led there. Raises what the API raises."""
        # Before all answers: the page follows the log from there, and must not miss what comes while it is made.
        head = self._ask("head")
        shown = page.show(self._ask, values)
        template = self._environment.get_template(page.template)
        here = page.path + (f"?{query}" if query else "")
        events = [] if done is None else self._ask("command", id=done)
        in_words = None if done is None else _done_in_words(done)
        self._frame = self._frame_now()
        found = self._frame | shown
        return template.render(head=head, path=page.path, here=here, done=events, done_in_words=in_words, **found)

    def render_template(self, file: str, /, **shown: Any) -> str:
        """The HTML of a template that is no page of the table, and does not follow the log."""
        template = self._environment.get_template(file)
        return template.render(head={"seq": 0, "at": None}, path="", here="/", done=[], **self._frame, **shown)

    def render_error(self, error: Mapping[str, str], status: int) -> str:
        """The HTML of an error."""
        return self.render_template("error.html", error=error, status=int(status))

    def _frame_now(self) -> dict[str, Any]:
        """The marks and the navigation of this build state, for every page."""
        made = [make(self._state) for make in rows(lambda feature: feature.marks)]
        entries = [entry for entry in navigation() if entry.is_offered(self._state)]
        return {"marks": [mark for mark in made if mark is not None], "navigation": entries}


class _Answers:
    """The answers of the API over a build state, by the names of its urls."""

    def __init__(self, state: State) -> None:
        self._state = state

    def __call__(self, name: str, /, **values: Any) -> Any:
        route = route_names()[name]
        defaults = read_parameters([known for known in route.parameters if not known.required], (), 0)
        return json_of(route.function(self._state, **(defaults | values)))

    def has(self, name: str, /) -> bool:
        return name in route_names()


def _done_in_words(command_id: str) -> str | None:
    """What a command of an action did, for an action whose events all have the same type."""
    in_words = {f"web/{action.name}/": action.done_in_words for action in actions() if action.done_in_words}
    return next((words for start, words in in_words.items() if command_id.startswith(start)), None)


def _calendar(ask: Ask, values: dict[str, Any]) -> dict[str, Any]:
    chosen, is_at_its_place = values.pop("ref"), bool(values["within"] or values["offset"])
    # A link that names a partition leads to the page that has it.
    find = values["find"] or (partition_key_of(chosen) if chosen and not is_at_its_place else None)
    found = ask("calendar", **{**values, "find": find})
    chosen = chosen or found["found"]
    shown: dict[str, Any] = {"values": values, "calendar": found, "chosen": chosen, "why": None, "partition": None}
    # A slider on which most places are refused helps nobody.
    shown["has_slider"] = ask("head")["seq"] <= MAX_FOLDED
    if chosen is not None:
        shown["partition"] = ask("partition", ref=chosen, as_of=values["as_of"])
        shown["why"], shown["why_error"] = or_error(lambda: ask("explain", name=chosen, as_of=values["as_of"]))
    return shown


def _partition(ask: Ask, values: dict[str, Any]) -> dict[str, Any]:
    name, as_of = values["ref"], values["as_of"]
    partition = ask("partition", ref=name, as_of=as_of)
    history = ask("history", ref=name, limit=MAX_INSTANCES)
    canonical = partition["canonical"]
    uuid = values["instance"] or (canonical["uuid"] if canonical else None)
    wants = ask("wants", ref=name, derivative=True, limit=MAX_WANTS_OF_REF)
    # The open wants, or the last one that ended.
    first_wants = [want for want in wants["wants"] if WantState(want["state"]) in OPEN_WANTS] or wants["wants"][:1]
    chosen = next((instance for instance in history if instance["uuid"] == uuid), None)
    shown: dict[str, Any] = {
        "values": values,
        "dataset": asset_of(name),
        "raised": ask("raised", job_run=chosen["job_run"]) if chosen else None,
        "partition": partition,
        "history": history,
        "is_cut": len(history) == MAX_INSTANCES,
        "lineage": _lineage_of(ask, name, uuid) if uuid else None,
        "contents": ask("contents", instance=uuid) if uuid else None,
        "wants": wants,
        "first_wants": first_wants,
        "ended_wants": [want for want in wants["wants"] if want not in first_wants],
        "receipt": _receipt_of(ask, uuid) if uuid else None,
        "pair": _pair_to_compare(history, canonical["uuid"] if canonical else None) if ask.has("diff") else None,
        "why": None,
        "why_error": None,
    }
    if as_of is None or as_of <= MAX_FOLDED:
        shown["why"], shown["why_error"] = or_error(lambda: ask("explain", name=name, as_of=as_of))
    return shown


def _lineage_of(ask: Ask, ref: Ref, uuid: str) -> Any:
    """The neighbours of an instance, which must belong to the page's partition. Raises `NotFound`."""
    found = ask("lineage", instance=uuid)
    if found["ref"] != ref:
        raise NotFound(kind=f"instance of {ref}", name=uuid)
    return found


def _receipt_of(ask: Ask, uuid: str) -> Any:
    """The receipt of an instance; None if it has no receipt, or if the feature that makes receipts is missing."""
    return or_error(lambda: ask("receipt", instance=uuid, limit=1))[0] if ask.has("receipt") else None


def _pair_to_compare(history: Sequence[dict[str, Any]], canonical: str | None) -> tuple[Any, Any] | None:
    """The instances that the page of a partition offers to compare: the canonical or newest instance, and its predecessor."""
    if len(history) < 2:
        return None
    known = [(instance["uuid"], instance["live_since"] is not None) for instance in history]
    second: Any = canonical if canonical in dict(known[1:]) else known[-1][0]
    first = one_before(known, second)
    return None if first is None else (first, second)


def _lineage(ask: Ask, values: dict[str, Any]) -> dict[str, Any]:
    unfold = values.pop("unfold")
    graph = ask("graph", **values)
    drawing = drawn(graph, unfold)
    # Deeper levels are offered as long as there are any.
    deeper = next((levels for levels in LEVELS if levels > drawing.depth), MAX_LEVELS)
    depths = [levels for levels in LEVELS if levels <= deeper or levels <= graph["levels"]]
    return {
        "values": values,
        "unfold": unfold,
        "graph": graph,
        "drawing": drawing,
        "depths": depths,
        "dataset": asset_of(graph["ref"]),
    }


def _wants(ask: Ask, values: dict[str, Any]) -> dict[str, Any]:
    is_open = values.pop("ended") is None and values["in_state"] is None
    found, error = or_error(lambda: ask("wants", open=is_open, **values))
    return {
        "values": values,
        "is_open": is_open,
        "found": found,
        "error": error,
        "states": [s.value for s in WantState],
    }


def _want(ask: Ask, values: dict[str, Any]) -> dict[str, Any]:
    name = values["name"]
    return {
        "values": values,
        "name": name,
        "found": ask("want", name=name),
        "listed": ask("want_refs", **values),
        "open_states": [state.value for state in OPEN_WANTS],
    }


_CHOSEN: Final = ref("ref", "The partition of which the page says why.")
_UNFOLD: Final = text("unfold", "The asset whose alike instances have a box each.")
_ENDED: Final = text("ended", "Any text: also wants that have ended.")
_ASSETS: Final = assets_page.PAGE.path


def _core_pages() -> tuple[Page, ...]:
    return (
        Page("/", "now.html", now_page.show, entry="Now"),
        assets_page.PAGE,
        Page("/calendar", "calendar.html", _calendar, (*parameters_of(ROUTES, "/calendar"), _CHOSEN), below=_ASSETS),
        numbers_page.PAGE,
        Page(
            "/partition",
            "partition.html",
            _partition,
            (*parameters_of(ROUTES, "/partition"), text("instance", "A uuid.")),
            below=_ASSETS,
        ),
        Page(
            "/wants",
            "wants.html",
            _wants,
            (*parameters_of(ROUTES, "/wants", without=("open",)), _ENDED),
            entry="Wants",
        ),
        taints_page.PAGE,
        Page("/lineage", "lineage.html", _lineage, (*parameters_of(ROUTES, "/graph"), _UNFOLD), below=_ASSETS),
        Page("/want", "want.html", _want, parameters_of(ROUTES, "/want_refs"), below="/wants"),
        Page("/plan", "plan.html", plan_page.show, plan_page.parameters(), entry="Plan"),
        Page("/builds", "builds.html", builds_page.show, parameters_of(ROUTES, "/builds"), entry="Builds"),
        *ledger_pages.PAGES,
        search_page.PAGE,
    )


@cache
def pages() -> tuple[Page, ...]:
    """The pages of the core and of the features."""
    return (*_core_pages(), *rows(lambda feature: feature.pages))


@cache
def page_paths() -> frozenset[str]:
    """The paths of all pages below the mount."""
    return frozenset(page.path for page in pages())


def _has_page(path: str) -> bool:
    return path in page_paths()


class Entry(NamedTuple):
    """An entry of the navigation, and the paths of the pages for which it is marked."""

    title: str
    path: str
    marked_for: frozenset[str]
    is_offered: Callable[[State], bool]


@cache
def navigation() -> Sequence[Entry]:
    """The entries of the navigation in their order."""
    with_entry = [page for page in pages() if page.entry]
    ordered: list[Page] = []
    for page in with_entry:
        if not page.entry_after:
            ordered += [page, *(other for other in with_entry if other.entry_after == page.path)]
    ordered += [page for page in with_entry if page not in ordered]
    below = {page.path: {page.path, *(other.path for other in pages() if other.below == page.path)} for page in ordered}
    return [Entry(page.entry, page.path, frozenset(below[page.path]), page.is_offered) for page in ordered]
