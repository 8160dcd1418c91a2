"""A want that has missed its SLA is told to whoever has asked to hear of it: a log, a webhook, a command (SPEC 5.5).

The log records once that it was missed. Each alert follows the log with a cursor of its own, which is stored after every
want: a crash loses none, and at worst one is told twice. What cannot be told is tried again in the next ticks, and then
given up; the other alerts go on meanwhile. All alerts together have some seconds in each tick, for launches wait for it.
"""

import json
import logging
import subprocess
import urllib.request
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from time import monotonic
from typing import Final, Protocol

import msgspec
from dagster import DagsterInstance

from databuild_dagster.bindings.registry.instance import DagsterCursors
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.follower import Cursor, LogFollower, Step, apart, steps
from databuild_dagster.engine.wording import when
from databuild_dagster.model import events as e
from databuild_dagster.model.refs import asset_of
from databuild_dagster.model.wording import few_of

#: Ticks in which an alert is tried before it is given up.
MAX_TRIES: Final = 10
#: How long a webhook or a command may take: a tick waits for it.
ALERT_SECONDS: Final = 5.0
#: How long all alerts of one tick may take; none is begun after that, and the next tick goes on.
TICK_SECONDS: Final = 10.0

_log = logging.getLogger(__name__)


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


class _Told(Cursor, frozen=True):
    """How far one alert has told; its entries are wants."""

    #: How often the want after these was tried in vain.
    tries: int = 0


class _AllTold(Cursor, frozen=True, kw_only=True):
    """How far the alerts of a location have told; everything up to `seq`."""

    #: In the order of the alerts.
    alerts: list[_Told]


@apart("alerts about missed SLAs could not be sent")
def send_alerts(
    instance: DagsterInstance,
    engine: Engine,
    location: str,
    alerts: Sequence[Alert],
    *,
    began_at: int,
    head: int | None = None,
) -> None:
    """Tell of the SLAs of a location's assets that were missed since the last time, as far as the time suffices.

    `began_at` is where the log ended before the tick: an alert that has never told anything begins there.
    """
    follower = LogFollower(engine, f"late_wants/{location}", _AllTold, DagsterCursors(instance), head=head)
    if follower.is_at_end:
        return
    until = monotonic() + TICK_SECONDS
    everybody = (LogAlert(), *alerts)
    known = kept.alerts if (kept := follower.load()) else []
    cursors = [*known, *[_Told(began_at)] * len(everybody)][: len(everybody)]
    left = [deque(_late_wants(follower, cursor)) for cursor in cursors]
    ready = set(range(len(everybody)))

    def keep() -> int:
        seq = min(cursor.seq for cursor in cursors)
        follower.keep(_AllTold(seq, alerts=list(cursors)))
        return seq

    while ready := {n for n in ready if left[n]}:
        # An alert that failed comes after those that work, so that it cannot use up their time; then who is behind comes first.
        n = min(ready, key=lambda n: (cursors[n].tries, cursors[n].seq, cursors[n].entry, n))
        want_id, after = left[n].popleft()
        late = None if want_id is None else _late(engine, want_id, location)
        tries = 0 if late is None or _is_sent(everybody[n], late) else cursors[n].tries + 1
        if tries:
            # No more is asked of it in this tick.
            ready.remove(n)
        if tries >= MAX_TRIES:
            _log.error("databuild: the alert about want %s is given up: %s", want_id, everybody[n])
        is_left = 0 < tries < MAX_TRIES
        cursors[n] = msgspec.structs.replace(cursors[n], tries=tries) if is_left else _Told(after.seq, after.entry)
        if late is not None:
            keep()
            # Looked at after it, so that each tick gets further.
            if monotonic() >= until:
                break
    follower.rest(keep())


def _late_wants(follower: LogFollower[_AllTold], cursor: Cursor) -> Iterator[Step]:
    """The wants that an alert has not told of, within its stretch of the log."""

    def wants(event: e.Event) -> tuple[str, ...]:
        assert isinstance(event.fact, e.WantSlaMissed)
        return event.fact.want_ids

    return steps(follower.events(cursor, ("WantSlaMissed",)), cursor, follower.last_seq(cursor), wants)


def _late(engine: Engine, want_id: str, location: str) -> LateWant | None:
    """None where another location tells of it: a want over several is told of by that of its first ref."""
    (want,) = engine.queries.wants_named(want_id)
    spec = engine.queries.dataset(asset_of(want.refs[0]))
    if spec is None or spec.location != location:
        return None
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


def _is_sent(alert: Alert, late: LateWant) -> bool:
    try:
        alert.send(late)
    except Exception:  # A user's own alert may raise anything.
        _log.warning("databuild: %s could not tell of want %s", alert, late.want_id, exc_info=True)
        return False
    return True
