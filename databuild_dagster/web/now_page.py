"""The page Now: similar entries share a line, so that a failure of a hundred partitions hides no other failure."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

from databuild_dagster.model.fold.demands import DERIVATIVE
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.model.states import ARC
from databuild_dagster.web.routes import Ask

#: Wants on the page, and open job runs; the job runs of a launch share a line.
MAX_WANTS: Final = 25
MAX_BUILDS: Final = 200
MAX_LAST_EVENTS: Final = 60
#: Lines of events.
MAX_LINES: Final = 20


class Wants(NamedTuple):
    """Wants with the same source, asset and state, newest first; a want of a person has a line of its own."""

    wants: list[dict[str, Any]]
    refs: list[Ref]
    n_refs: int


class Events(NamedTuple):
    """Consecutive events of the same type and actor; `event` is the newest."""

    event: dict[str, Any]
    n: int


def show(ask: Ask, values: dict[str, Any]) -> dict[str, Any]:
    """The values of the template."""
    wants = ask("wants", open=True, limit=MAX_WANTS)
    builds = ask("builds", limit=MAX_BUILDS)
    failures = ask("failures")
    return {
        "orchestrators": ask("orchestrators"),
        "n_builds": f"{len(builds):,}{'+' if len(builds) == MAX_BUILDS else ''}",
        "launches": _by_launch(builds),
        "wants": wants,
        "waited": together(wants["wants"]),
        "overdue": [want for want in wants["wants"] if want["sla_missed_at"]],
        "failures": failures,
        "events": shortened(ask("events", limit=MAX_LAST_EVENTS))[:MAX_LINES],
    }


def together(wants: Sequence[dict[str, Any]]) -> list[Wants]:
    """The wants of arcs and job runs, grouped by asset, state, source and actor; each want of a person is a group."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for want in wants:
        is_alone = want["source"] not in (ARC, DERIVATIVE) or want["deadline"] or not want["refs"]
        key = (want["id"],) if is_alone else (asset_of(want["refs"][0]), want["state"], want["source"], want["actor"])
        groups.setdefault(key, []).append(want)
    return [
        Wants(
            group,
            list(dict.fromkeys(ref for want in group for ref in want["refs"])),
            sum(want["n_refs"] for want in group),
        )
        for group in groups.values()
    ]


def shortened(events: Sequence[dict[str, Any]]) -> list[Events]:
    """The events, with repeated events of an actor joined if they name no refs; an event with refs has a line of its own."""
    groups = groupby(events, lambda event: (event["type"], event["actor"], event["n_refs"] and event["seq"]))
    return [Events(group[0], len(group)) for group in (list(found) for _, found in groups)]


def _by_launch(builds: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Job runs of the same job that began together in the same Dagster run."""
    launches: dict[tuple[object, ...], list[dict[str, Any]]] = {}
    for build in builds:
        run = build["job_run"]
        key = (run["job"], run["state"], run["dagster_run_id"], run["started_at"])
        launches.setdefault(key, []).append(build)
    return list(launches.values())
