"""The time and the limits of an orchestrator's last tick for a location, so that other processes can tell what it does next.

They are beside the heartbeats of launches, outside the log: an idle tick leaves no other trace. Each tick removes old
notes. The same place has where the pages of databuild are, as the web server that has them announces it; builders link to them. It
is a path without a host: a person reads a link in Dagster's pages, which are at the same address.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict
from functools import lru_cache
from math import inf
from typing import Final, NamedTuple

from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.holders import surely_gone, this_process
from databuild_dagster.engine.tick_pass import TickLimits
from databuild_dagster.engine.wording import when
from databuild_dagster.version import __version__

#: Begins the name of an orchestrator's heartbeat.
ORCHESTRATOR = "orchestrator of "
#: Heartbeats are kept this long: a launch that is silent for longer is lost.
KEEP_SECONDS = 7 * 24 * 3600.0
#: A process removes older notes at this interval.
FORGET_EVERY_SECONDS = 3600.0
#: An orchestrator that is silent for longer, and for two intervals, is absent (rule 11.4).
MIN_SILENCE_SECONDS = 60.0
#: An orchestrator that ticked so long ago may be restarting: a command removes nothing from its registration (rule 5.7).
RESTART_SECONDS: Final = 600.0
#: Older notes of the code of processes are not shown.
CODE_SECONDS: Final = 24 * 3600.0
#: A web server announces its pages this often.
ANNOUNCE_EVERY_SECONDS: Final = 3600.0
#: A process looks for the last announcement this often.
LOOK_EVERY_SECONDS: Final = 60.0
#: Begins the name of a web server's heartbeat; the path is the rest, because a heartbeat has no other text.
_PAGES: Final = "pages at "

_NEVER: tuple[float, str | None] = (-inf, None)


class CodeAtWork(NamedTuple):
    """The code of a location that a process has noted."""

    #: As `holders.this_process` names it.
    process: str
    #: Of this package.
    version: str
    #: Of the location's datasets.
    fingerprint: str
    is_orchestrator: bool
    at: float

    @property
    def in_words(self) -> str:
        role = "the orchestrator" if self.is_orchestrator else "commands"
        return f"{role} on {self.host}: databuild_dagster {self.version}, code {self.fingerprint[:8]}"

    @property
    def host(self) -> str:
        return self.process.partition("/")[0]


class LastTick(NamedTuple):
    """The notes of an orchestrator."""

    #: The begin of its last tick.
    at: float
    #: The expected begin of the next tick, if it is known.
    next_at: float


class Absence(NamedTuple):
    """An orchestrator that does not tick, as far as the store can tell."""

    location: str
    sentence: str


def note_tick(engine: Engine, location: str, limits: TickLimits, interval_seconds: float = 0.0) -> None:
    """Note a tick of the location's orchestrator, the interval to its next tick, and its limits.

    A tick without an interval, of `build` or `admin tick`, promises no other tick. Only its limits are noted, and only while no
    orchestrator ticks.
    """
    if interval_seconds:
        now = engine.clock()
        engine.heartbeats.beat([_name(location), _limits_name(location, limits)], now)
        engine.heartbeats.beat([_next_name(location)], now + interval_seconds)
    elif absence_of(engine, location) is not None:
        engine.heartbeats.beat([_limits_name(location, limits)], engine.clock())


def last_tick(engine: Engine, location: str) -> LastTick | None:
    """The last tick of the location's orchestrator; None if there was none in `KEEP_SECONDS`."""
    noted = engine.heartbeats.last([_name(location), _next_name(location)])
    at = noted.get(_name(location))
    return None if at is None else LastTick(at, max(at, noted.get(_next_name(location), at)))


def absence_of(engine: Engine, location: str) -> Absence | None:
    """None while the location's orchestrator ticks: its last tick is two intervals old, or `MIN_SILENCE_SECONDS`."""
    ticked, now = last_tick(engine, location), engine.clock()
    if ticked is None:
        never = f"no orchestrator of location {location!r} has ticked here, so nothing builds for it: `databuild dev` runs one"
        return Absence(location, never)
    if now - ticked.at <= _silence(ticked):
        return None
    return Absence(
        location,
        f"the orchestrator of location {location!r} last ticked at {when(ticked.at)}, {now - ticked.at:.0f} s ago, so nothing "
        "builds for it: it is not running (`databuild dev` runs it), or busy with a launch of its own",
    )


def _silence(ticked: LastTick | None) -> float:
    """Seconds after which an orchestrator is absent."""
    return MIN_SILENCE_SECONDS if ticked is None else max(MIN_SILENCE_SECONDS, 2 * (ticked.next_at - ticked.at))


def note_code(engine: Engine, location: str, fingerprint: str) -> None:
    """Note that a process with this version of the location's code is at work."""
    engine.heartbeats.beat([_code_name(location, fingerprint)], engine.clock())


def note_process(engine: Engine, location: str, fingerprint: str, code: str, *, is_orchestrator: bool) -> None:
    """The same for a process that ticks, and which version of the package and of the location's code it has itself."""
    noted = json.dumps([this_process(), __version__, code, is_orchestrator])
    engine.heartbeats.beat([_code_name(location, fingerprint), _process_prefix(location) + noted], engine.clock())


def code_at_work(engine: Engine, location: str) -> list[CodeAtWork]:
    """The last note of each host, of its orchestrators and of its commands, not older than `CODE_SECONDS`. Scans all heartbeats."""
    prefix, found = _process_prefix(location), dict[tuple[str, bool], CodeAtWork]()
    for name, at in engine.heartbeats.since(engine.clock() - CODE_SECONDS, prefix):
        process, version, fingerprint, is_orchestrator = json.loads(name.removeprefix(prefix))
        noted = CodeAtWork(process, version, fingerprint, is_orchestrator, at)
        found.setdefault((noted.host, is_orchestrator), noted)
    return list(found.values())


def has_orchestrator(engine: Engine, location: str) -> bool:
    """Whether an orchestrator of the location is at work or may be restarting, as far as the notes and this machine tell."""
    ticked = last_tick(engine, location)
    if ticked is None or engine.clock() - ticked.at > max(RESTART_SECONDS, _silence(ticked)):
        return False
    noted = [code.process for code in code_at_work(engine, location) if code.is_orchestrator]
    return not noted or not all(map(surely_gone, noted))


def is_superseded(engine: Engine, location: str, fingerprint: str, present: str) -> bool:
    """Whether this version of the location's code was at work before, and the present version is now."""
    names = [_code_name(location, version) for version in (fingerprint, present)]
    noted = engine.heartbeats.last(names)
    # A note of the future was made while a clock ran ahead, and would hold for as long.
    silence = abs(engine.clock() - noted.get(names[1], -inf))
    return names[0] in noted and silence <= _silence(last_tick(engine, location))


def absences_of(engine: Engine, assets: Iterable[str]) -> list[Absence]:
    """The absences of the locations that build `assets`, by name."""
    datasets = engine.queries.datasets.all()
    specs = [spec for spec in datasets.values() if spec.asset in set(assets) and spec.kind.is_built]
    found = [absence_of(engine, location) for location in sorted({spec.location for spec in specs})]
    return [absence for absence in found if absence is not None]


def limits_of(engine: Engine, location: str) -> TickLimits:
    """The last noted limits of the location's orchestrator; the defaults if there are none."""
    prefix = _limits_prefix(location)
    noted = engine.heartbeats.newest(prefix)
    return TickLimits() if noted is None else TickLimits(**json.loads(noted.removeprefix(prefix)))


def forget_old_heartbeats(engine: Engine) -> None:
    """Remove heartbeats older than `KEEP_SECONDS`, every `FORGET_EVERY_SECONDS`."""
    now = engine.steady()
    if now - engine.memory.of(forget_old_heartbeats, lambda: -inf) >= FORGET_EVERY_SECONDS:
        engine.heartbeats.forget_before(engine.clock() - KEEP_SECONDS)
        engine.memory.put(forget_old_heartbeats, now)


def _name(location: str) -> str:
    return ORCHESTRATOR + location


def _next_name(location: str) -> str:
    return f"next tick of {location}"


def _code_name(location: str, fingerprint: str) -> str:
    return f"code of {json.dumps(location)}: {fingerprint}"


def _process_prefix(location: str) -> str:
    return f"process with code of {json.dumps(location)}: "


@lru_cache(maxsize=64)
def _limits_name(location: str, limits: TickLimits) -> str:
    return _limits_prefix(location) + json.dumps(asdict(limits))


def _limits_prefix(location: str) -> str:
    """The limits are a part of the name: a heartbeat has no other text. The quotes end the location's name."""
    return f"limits of {json.dumps(location)}: "


def note_pages(engine: Engine, root: str) -> None:
    """Announce that a web server has the pages at a path, such as `/prefix/databuild`."""
    engine.heartbeats.beat([_PAGES + root], engine.clock())


def pages_root(engine: Engine) -> str | None:
    """The path that was announced last, within `KEEP_SECONDS`; None if no web server has pages. A minute old at most."""
    now = engine.steady()
    looked_at, root = engine.memory.of(pages_root, lambda: _NEVER)
    if now - looked_at >= LOOK_EVERY_SECONDS:
        root = _announced(engine)
        engine.memory.put(pages_root, (now, root))
    return root


def _announced(engine: Engine) -> str | None:
    """Scans all heartbeats."""
    name = engine.heartbeats.newest(_PAGES)
    if name is None or engine.heartbeats.last([name]).get(name, 0.0) < engine.clock() - KEEP_SECONDS:
        return None
    return name.removeprefix(_PAGES)
