"""The pages of arcs, gaps, operations and the ledger."""

from __future__ import annotations

from typing import Any, Final

from databuild_dagster.model.coordination import Answer, DelegationOutcome
from databuild_dagster.web.flow_api import FLOW_ROUTES
from databuild_dagster.web.parameters import Parameter
from databuild_dagster.web.routes import Ask, Page, or_error

#: Ended operations of one page.
MAX_ENDED: Final = 30
_PARAMETERS: Final = {route.path: route.parameters for route in FLOW_ROUTES}


def _arcs(ask: Ask, values: dict[str, Any]) -> dict[str, Any]:
    return {"values": values, "found": ask("arcs", **values)}


def _arc(ask: Ask, values: dict[str, Any]) -> dict[str, Any]:
    found = ask("arc", **values)
    return {"values": values, "found": found, "arc": found["arc"]}


def _gaps(ask: Ask, values: dict[str, Any]) -> dict[str, Any]:
    found, error = or_error(lambda: ask("gaps", chain=True, **values))
    return {"values": values, "gaps": found, "error": error}


def _operations(ask: Ask, values: dict[str, Any]) -> dict[str, Any]:
    found, error = or_error(lambda: ask("operations", limit=MAX_ENDED, **values))
    return {"values": values, "found": found, "error": error}


def _operation(ask: Ask, values: dict[str, Any]) -> dict[str, Any]:
    return {"values": values, "operation": ask("operation", **values)}


def _delegations(ask: Ask, values: dict[str, Any]) -> dict[str, Any]:
    found, error = or_error(lambda: ask("ledger", **values))
    savings = ask("savings")
    return {
        "values": values,
        "found": found,
        "error": error,
        "is_counted": savings["is_counted"],
        "jobs": _spared(savings["jobs"]),
        "kinds": [kind.value for kind in Answer],
        "outcomes": [outcome.value for outcome in DelegationOutcome],
    }


def _spared(savings: dict[str, Any]) -> list[dict[str, Any]]:
    """The jobs, those that were spared most first."""
    jobs = [{"job": job, **metrics} for job, metrics in savings.items()]
    return sorted(jobs, key=lambda found: (-found["avoided"], found["job"]))


def _without(path: str, *names: str) -> tuple[Parameter, ...]:
    return tuple(parameter for parameter in _PARAMETERS[path] if parameter.name not in names)


FLOW_PAGES: Final = (
    Page("/arcs", "arcs.html", _arcs, _PARAMETERS["/arcs"], entry="Arcs"),
    Page("/arc", "arc.html", _arc, _PARAMETERS["/arc"], below="/arcs"),
    Page("/gaps", "gaps.html", _gaps, _without("/gaps", "chain", "limit"), below="/arcs"),
    Page("/operations", "operations.html", _operations, _without("/operations", "limit"), entry="Operations"),
    Page("/operation", "operation.html", _operation, _PARAMETERS["/operation"], below="/operations"),
    Page("/delegations", "delegations.html", _delegations, _PARAMETERS["/ledger"], entry="Delegations"),
)
