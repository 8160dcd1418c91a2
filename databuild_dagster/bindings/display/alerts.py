"""A want that has missed its SLA is told to whoever has asked to hear of it: a log, a webhook, a command (SPEC 5.5).

That it was missed is in the log, once. Each alert tells it from there, up to a cursor of its own that is kept in Dagster
after every want, so that a crash loses none, and at worst one is told twice. What cannot be told is tried again in the
next ticks, and then given up; the other alerts go on meanwhile. All of it has some seconds in each tick, for what is to
be launched waits for the tick.
"""

import json
import logging
import subprocess
import urllib.request
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from time import monotonic
from typing import Final, NamedTuple, Protocol
from weakref import WeakKeyDictionary

import msgspec
from dagster import DagsterInstance

from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.wording import when
from databuild_dagster.model import events as e
from databuild_dagster.model.refs import asset_of
from databuild_dagster.model.wording import few_of
from databuild_dagster.store.queries.wants import WantView

#: Events looked at in one tick; the next one goes on.
MAX_EVENTS: Final = 10_000
#: Ticks in which an alert is tried before it is given up.
MAX_TRIES: Final = 10
#: How long a webhook or a command may take: a tick waits for it.
ALERT_SECONDS: Final = 5.0
#: How long all alerts of one tick may take; none is begun after that, and the next tick goes on.
TICK_SECONDS: Final = 10.0

_CURSOR: Final = "databuild/alerts/"
_log = logging.getLogger(__name__)

#: By engine, so by process: up to which event each location has told everything, so that an idle tick asks nobody.
_done: WeakKeyDictionary[Engine, dict[str, int]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class LateWant:
    """A want that was not successful by its deadline."""

    want_id: str
    request_id: str
    refs: tuple[str, ...]
    #: Its state when the alert is sent.
    state: str
    source: str
    comment: str
    created_at: str | None
    deadline: str | None

    @property
    def sentence(self) -> str:
        return (
            f"Want {self.want_id} for {few_of(self.refs)} was to be successful by {self.deadline} and is {self.state}; "
            f"`databuild explain {self.want_id}` says why."
        )


class Alert(Protocol):
    """Tells somebody, within seconds, for a tick waits for it; raises whatever went wrong, to be asked again."""

    def send(self, late: LateWant) -> None: ...


@dataclass(frozen=True, slots=True)
class LogAlert:
    """A warning in the log of whatever process ticks; in any case there is one without asking for it."""

    def send(self, late: LateWant) -> None:
        _log.warning("databuild: %s", late.sentence)


@dataclass(frozen=True, slots=True)
class WebhookAlert:
    """POSTs JSON to a url: the late want, and a sentence as `text`, which chat services show."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)

    def send(self, late: LateWant) -> None:
        body = json.dumps({"text": late.sentence, **asdict(late)}).encode()
        request = urllib.request.Request(self.url, body, {"Content-Type": "application/json", **self.headers})
        with urllib.request.urlopen(request, timeout=ALERT_SECONDS):
            return


@dataclass(frozen=True, slots=True)
class CommandAlert:
    """Runs a command with the late want as JSON on its stdin; anything but exit code 0 is a failure."""

    command: Sequence[str]

    def send(self, late: LateWant) -> None:
        subprocess.run(
            list(self.command),
            input=json.dumps({"text": late.sentence, **asdict(late)}),
            text=True,
            capture_output=True,
            timeout=ALERT_SECONDS,
            check=True,
        )


class _Cursor(msgspec.Struct, frozen=True):
    """How far an alert has told."""

    #: Everything up to this event.
    seq: int = 0
    #: Of the next event that tells of late wants, so many.
    wants: int = 0
    #: How often the want after these was tried in vain.
    tries: int = 0


class _LateEntry(NamedTuple):
    """One want of an event."""

    want_id: str
    #: The cursor when it has been told.
    after: _Cursor


@dataclass(slots=True)
class _Telling:
    """What one alert does in one tick."""

    alert: Alert
    cursor: _Cursor
    left: deque[_LateEntry]
    #: It could not tell of a want: no more is asked of it in this tick.
    has_failed: bool = False

    @property
    def rank(self) -> tuple[int, int, int]:
        """Who is well goes before who was not, so that those cannot use up the others' time; then who is behind."""
        return (self.cursor.tries, self.cursor.seq, self.cursor.wants)

    def tell_next(self, engine: Engine, location: str) -> bool:
        """Go one want further, if that can be told; returns whether somebody had to be asked for it."""
        want_id, after = self.left[0]
        (want,) = engine.queries.wants_named(want_id)
        is_ours = _is_of(engine, want, location)
        if is_ours and not self._sent(_late(want)):
            tries = self.cursor.tries + 1
            if tries < MAX_TRIES:
                self.cursor = _Cursor(self.cursor.seq, self.cursor.wants, tries)
                return True
            _log.error("databuild: the alert about want %s is given up: %s", want_id, self.alert)
        self.left.popleft()
        self.cursor = after
        return is_ours

    def _sent(self, late: LateWant) -> bool:
        try:
            self.alert.send(late)
        except Exception:  # A user's own alert may raise anything.
            _log.warning("databuild: %s could not tell of want %s", self.alert, late.want_id, exc_info=True)
            self.has_failed = True
        return not self.has_failed


def send_alerts(
    instance: DagsterInstance, engine: Engine, location: str, alerts: Sequence[Alert], *, began_at: int
) -> None:
    """Tell of the SLAs of a location's assets that were missed since the last time, as far as the time suffices.

    `began_at` is where the log ended before the tick: who has never told anything begins there.
    """
    head = engine.queries.head().seq
    done = _done.setdefault(engine, {})
    if done.get(location) == head:
        return
    until = monotonic() + TICK_SECONDS
    name = _CURSOR + location
    kept = instance.daemon_cursor_storage.get_cursor_values({name}).get(name)
    everybody = (LogAlert(), *alerts)
    cursors = _cursors(kept, len(everybody), began_at)
    tellings = [_telling(engine, alert, cursor, head) for alert, cursor in zip(everybody, cursors, strict=True)]

    def keep() -> None:
        nonlocal kept
        now = msgspec.json.encode([telling.cursor for telling in tellings]).decode()
        if now != kept:
            instance.daemon_cursor_storage.set_cursor_values({name: now})
            kept = now

    while ready := [telling for telling in tellings if telling.left and not telling.has_failed]:
        if min(ready, key=lambda telling: telling.rank).tell_next(engine, location):
            keep()
            # Looked at after it, so that each tick gets further.
            if monotonic() >= until:
                break
    keep()
    done[location] = min(telling.cursor.seq for telling in tellings)


def _cursors(kept: str | None, n: int, began_at: int) -> list[_Cursor]:
    """In the order of the alerts, for as many as there are now. There was one for all of them once."""
    found = [] if kept is None else msgspec.json.decode(kept, type=list[_Cursor] | _Cursor)
    known = found if isinstance(found, list) else [found] * n
    return [*known[:n], *[_Cursor(began_at)] * (n - len(known))]


def _telling(engine: Engine, alert: Alert, cursor: _Cursor, head: int) -> _Telling:
    """The late wants after an alert's cursor; where there is none, the cursor goes on to what was looked at."""
    last = min(head, cursor.seq + MAX_EVENTS)
    left: deque[_LateEntry] = deque()
    place = cursor
    for event in engine.queries.events_named(("WantSlaMissed",), cursor.seq, last):
        assert isinstance(event.fact, e.WantSlaMissed)
        for told, want_id in enumerate(event.fact.want_ids[place.wants :], start=place.wants + 1):
            left.append(_LateEntry(want_id, _Cursor(place.seq, told)))
        place = _Cursor(event.seq)
    if left:
        left.append(left.pop()._replace(after=_Cursor(last)))
        return _Telling(alert, cursor, left)
    return _Telling(alert, _Cursor(last), left)


def _is_of(engine: Engine, want: WantView, location: str) -> bool:
    """A want over several locations is told of by that of its first ref."""
    spec = engine.queries.dataset(asset_of(want.refs[0]))
    return spec is not None and spec.location == location


def _late(want: WantView) -> LateWant:
    return LateWant(
        want_id=want.id,
        request_id=want.request_id,
        refs=want.refs,
        state=want.state.value,
        source=want.source,
        comment=want.comment,
        created_at=when(want.created_at),
        deadline=None if want.deadline is None else when(want.deadline),
    )
