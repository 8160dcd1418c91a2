"""A want that has missed its SLA is told to whoever has asked to hear of it: a log, a webhook, a command (SPEC 5.5).

That it was missed is in the log, once. It is told from there, up to a cursor kept in Dagster, so that a crash between the
two loses no alert: at worst it is told twice. What cannot be told is tried again in the next ticks, and then given up.
"""

import json
import logging
import subprocess
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final, Protocol
from weakref import WeakKeyDictionary

import msgspec
from dagster import DagsterInstance

from databuild_dagster.engine import Engine
from databuild_dagster.engine.wording import when
from databuild_dagster.model import events as e
from databuild_dagster.model.refs import asset_of
from databuild_dagster.model.wording import few_of
from databuild_dagster.store.queries import WantView

#: Events looked at in one tick; the next one goes on.
MAX_EVENTS: Final = 10_000
#: Ticks in which an alert is tried before it is given up.
MAX_TRIES: Final = 10
#: How long a webhook or a command may take: a tick waits for it.
ALERT_SECONDS: Final = 10.0

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
    """Tells somebody; raises whatever went wrong, to be asked again."""

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
    """Up to which event everything has been told, and how often the next one was tried in vain."""

    seq: int = 0
    tries: int = 0


def send_alerts(
    instance: DagsterInstance, engine: Engine, location: str, alerts: Sequence[Alert], *, began_at: int
) -> None:
    """Tell of the SLAs of a location's assets that were missed since the last time.

    `began_at` is where the log ended before the tick: who has never told anything begins there.
    """
    head = engine.queries.head().seq
    done = _done.setdefault(engine, {})
    if done.get(location) == head:
        return
    name = _CURSOR + location
    kept = instance.daemon_cursor_storage.get_cursor_values({name}).get(name)
    cursor = _Cursor(began_at) if kept is None else msgspec.json.decode(kept, type=_Cursor)
    last = min(head, cursor.seq + MAX_EVENTS)
    after = cursor
    for event in engine.queries.events_named(("WantSlaMissed",), cursor.seq, last):
        assert isinstance(event.fact, e.WantSlaMissed)
        if not _sent(engine, event.fact, location, alerts):
            tries = after.tries + 1
            if tries < MAX_TRIES:
                after = _Cursor(event.seq - 1, tries)
                break
            _log.error("databuild: the alert about wants %s is given up", ", ".join(event.fact.want_ids))
        after = _Cursor(event.seq)
    else:
        after = _Cursor(last)
    if kept is None or after != cursor:
        instance.daemon_cursor_storage.set_cursor_values({name: msgspec.json.encode(after).decode()})
    done[location] = after.seq


def _sent(engine: Engine, fact: e.WantSlaMissed, location: str, alerts: Sequence[Alert]) -> bool:
    """Each alert hears of each want, whatever has become of the others."""
    is_sent = True
    for want_id in fact.want_ids:
        (want,) = engine.queries.wants_named(want_id)
        if not _is_of(engine, want, location):
            continue
        for alert in (LogAlert(), *alerts):
            try:
                alert.send(_late(want))
            except Exception:  # A user's own alert may raise anything.
                _log.warning("databuild: %s could not tell of want %s", alert, want_id, exc_info=True)
                is_sent = False
    return is_sent


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
