"""The page Now: similar entries share a line, so that a failure of a hundred partitions hides no other failure."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from databuild_dagster.model.fold.demands import DERIVATIVE, FOUND_MISSING
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.model.states import ARC
from databuild_dagster.web.routes import Ask

#: Wants on the page, and open job runs; the job runs of a launch share a line.
MAX_WANTS: Final = 25
MAX_BUILDS: Final = 200
MAX_LAST_EVENTS: Final = 200
#: Similar events share a line if the oldest is at most so much older than the newest.
TOGETHER_SECONDS: Final = 600.0
_WANTED: Final = "WantCreated"
#: Lines of events.
MAX_LINES: Final = 20


class Wants(NamedTuple):
    """Wants with the same source, asset and state, newest first; a want of a person has a line of its own."""

    wants: list[dict[str, Any]]
    refs: list[Ref]
    n_refs: int


class Events(NamedTuple):
    """Events of the same type, actor and text about the same asset, at most `TOGETHER_SECONDS` apart; `event` is the newest."""

    event: dict[str, Any]
    n: int
    #: The first refs, the newest first, and the number of all.
    refs: list[Ref]
    n_refs: int
    #: The whole line, where the words of the type do not say enough; else empty.
    in_words: str


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
    """The events, newest first, with similar events joined: a launch of a month is one line and not a line for each day."""
    lines: list[list[dict[str, Any]]] = []
    newest: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for event in events:
        key = (event["type"], event["actor"], event["text"], *(asset_of(ref) for ref in event["refs"][:1]))
        line = newest.get(key)
        if line is None or _at(line[0]) - _at(event) > TOGETHER_SECONDS:
            line = newest[key] = []
            lines.append(line)
        line.append(event)
    return [_joined(line) for line in lines]


def _at(event: dict[str, Any]) -> float:
    return datetime.fromisoformat(event["at"]).timestamp()


def _joined(line: Sequence[dict[str, Any]]) -> Events:
    refs = list(dict.fromkeys(ref for event in line for ref in event["refs"]))
    # Of a single event not all refs are named; several events may name the same refs.
    n_refs = max(len(refs), sum(event["n_refs"] for event in line) if line[0]["type"] == _WANTED else line[0]["n_refs"])
    is_derivative = line[0]["type"] == _WANTED and line[0]["text"] == FOUND_MISSING
    wants = "want was made for an input" if n_refs == 1 else "wants were made for inputs"
    return Events(
        line[0], len(line), refs, n_refs, f"{n_refs:,} {wants} that a job run found missing" if is_derivative else ""
    )


def _by_launch(builds: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Job runs of the same job that began together in the same Dagster run."""
    launches: dict[tuple[object, ...], list[dict[str, Any]]] = {}
    for build in builds:
        run = build["job_run"]
        key = (run["job"], run["state"], run["dagster_run_id"], run["started_at"])
        launches.setdefault(key, []).append(build)
    return list(launches.values())
