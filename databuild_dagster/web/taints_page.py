"""The page of what a person holds: the taints that readers see now, and the pauses in force (rules 7, 6.13)."""

from typing import Any, Final

import msgspec

from databuild_dagster.engine.why.partitions import Pause, shown_pause
from databuild_dagster.model.refs import Ref
from databuild_dagster.store.queries.instances import TaintNow
from databuild_dagster.web.routes import ApiRoute, Ask, Page
from databuild_dagster.web.state import State

#: Taints, and pauses, of an answer.
MAX_LISTED: Final = 200


class PausedName(msgspec.Struct, frozen=True):
    """A ref, or an asset with all of its partitions, that nothing launches."""

    name: Ref
    pause: Pause


class Holds(msgspec.Struct, frozen=True):
    """The newest taints that readers see now, and the newest pauses in force; `is_cut` if there are more."""

    taints: list[TaintNow]
    n_pauses: int
    pauses: list[PausedName]
    is_cut: bool


def taints(state: State) -> Holds:
    """The taints and pauses in force."""
    engine = state.engine
    found = state.kept("taints", lambda: engine.queries.instances.taints_now(MAX_LISTED + 1))
    pauses = engine.queries.planning.pauses_in_force(engine.now())[::-1]
    shown = [PausedName(pause.ref, shown_pause(pause)) for pause in pauses[:MAX_LISTED]]
    return Holds(found[:MAX_LISTED], len(pauses), shown, len(found) > MAX_LISTED or len(pauses) > MAX_LISTED)


ROUTES: Final = (ApiRoute("/taints", "The taints that readers see now, and the pauses in force.", taints, Holds),)


def _show(ask: Ask, values: dict[str, Any]) -> dict[str, Any]:
    return {"found": ask("taints"), "most": MAX_LISTED}


PAGE: Final = Page("/taints", "taints.html", _show, entry="Taints", entry_after="/wants")
