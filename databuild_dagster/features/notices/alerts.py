"""Alerts about wants that missed their SLA: a line in the log, a webhook, a command (rule 5.5); and the setting `alerts=`.

The log has an event per missed SLA. Each alert follows the log with its own cursor, stored after every want: a crash
loses no alert and repeats at most one. A failing alert is retried in the next ticks and then given up, without delaying
any other alert. All alerts of a tick share a time limit, because launches wait for the tick.
"""

import json
import subprocess
import urllib.request
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from time import monotonic
from typing import Annotated, Final, Protocol
from urllib.parse import urlsplit

import msgspec
from dagster import DagsterInstance, Model, Resolvable
from pydantic import Field

from databuild_dagster.bindings.declare.parameters import InvalidAsset
from databuild_dagster.bindings.declare.settings import Setting, described
from databuild_dagster.bindings.registry.instance import DagsterCursors
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.follower import Cursor, LogFollower, Step, apart, steps
from databuild_dagster.engine.wording import when
from databuild_dagster.model import events as e
from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.logs import logger
from databuild_dagster.model.redaction import keep_secret
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.model.wording import few_of, typed

#: Ticks in which an alert is tried for a want before it is given up.
MAX_TRIES: Final = 10
#: How long a webhook or a command may take: a tick waits for it.
ALERT_SECONDS: Final = 5.0
#: How long all alerts of a tick may take; later alerts wait for the next tick.
TICK_SECONDS: Final = 10.0

_log = logger(__name__)


@dataclass(frozen=True, slots=True)
class LateWant:
    """A want that was not successful by its deadline."""

    want_id: str
    request_id: str
    refs: tuple[Ref, ...]
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
            f"`databuild explain {typed(self.want_id)}` says why."
        )


class AlertFailed(DatabuildError):
    """{alert} failed: {why}."""


class Alert(Protocol):
    """Sends an alert within seconds, because a tick waits for it; an error means that it is retried."""

    def send(self, late: LateWant) -> None: ...


@dataclass(frozen=True, slots=True)
class LogAlert:
    """A warning in the log of the process that ticks; it is always sent."""

    def send(self, late: LateWant) -> None:
        _log.warning("databuild: %s", late.sentence)


@dataclass(frozen=True, slots=True)
class WebhookAlert:
    """POSTs JSON to a url: the late want, and a sentence as `text`, which chat services show. Follows no redirect."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        keep_secret(self.url, parts.path.strip("/"), parts.query, parts.username, parts.password)
        for header in self.headers.values():
            keep_secret(header, header.rpartition(" ")[2])

    def __repr__(self) -> str:
        return f"WebhookAlert({urlsplit(self.url).hostname})"

    def send(self, late: LateWant) -> None:
        """POST it. Raises what urllib raises; an answer that takes longer than `ALERT_SECONDS` is an error."""
        body = json.dumps({"text": late.sentence, **asdict(late)}).encode()
        request = urllib.request.Request(self.url, body, {"Content-Type": "application/json", **self.headers})
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=ALERT_SECONDS):
            return


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """urllib would send the headers to the other host, and a GET without the body."""

    def redirect_request(self, *_: object) -> None:
        return None


@dataclass(frozen=True, slots=True)
class CommandAlert:
    """Runs a command with the late want as JSON on its stdin; any exit code but 0 is a failure."""

    command: Sequence[str]

    def __repr__(self) -> str:
        return f"CommandAlert({self.command[0]})"

    def send(self, late: LateWant) -> None:
        """Run the command. Raises `AlertFailed` for an exit code other than 0 and after `ALERT_SECONDS`, and OSError."""
        try:
            subprocess.run(
                list(self.command),
                input=json.dumps({"text": late.sentence, **asdict(late)}),
                text=True,
                capture_output=True,
                timeout=ALERT_SECONDS,
                check=True,
            )
        except subprocess.CalledProcessError as error:
            # Its own text quotes the arguments, which may be secret.
            raise AlertFailed(alert=self, why=f"exit code {error.returncode}") from None
        except subprocess.TimeoutExpired:
            raise AlertFailed(alert=self, why=f"no end within {ALERT_SECONDS:.0f} s") from None


class _Sent(Cursor, frozen=True):
    """How far an alert has come; its entries are wants."""

    #: Failed attempts for the next want.
    tries: int = 0


class _AllSent(Cursor, frozen=True, kw_only=True):
    """How far the alerts of a location have come; everything up to `seq` is done."""

    #: In the order of the alerts.
    alerts: list[_Sent]


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
    """Send alerts for newly missed SLAs of a location's assets, as far as the time suffices.

    `began_at` is the end of the log before the tick, where an alert without a cursor begins.
    """
    follower = LogFollower(engine, f"late_wants/{location}", _AllSent, DagsterCursors(instance), head=head)
    if follower.is_at_end:
        return
    until = monotonic() + TICK_SECONDS
    senders = (LogAlert(), *alerts)
    known = kept.alerts if (kept := follower.load()) else []
    cursors = [*known, *[_Sent(began_at)] * len(senders)][: len(senders)]
    left = [deque(_late_wants(follower, cursor)) for cursor in cursors]
    ready = set(range(len(senders)))

    def keep() -> int:
        seq = min(cursor.seq for cursor in cursors)
        follower.keep(_AllSent(seq, alerts=list(cursors)))
        return seq

    while ready := {n for n in ready if left[n]}:
        # A failed alert comes after working ones, so that it cannot use up their time; then the one furthest behind.
        n = min(ready, key=lambda n: (cursors[n].tries, cursors[n].seq, cursors[n].entry, n))
        want_id, after = left[n].popleft()
        late = None if want_id is None else _late(engine, want_id, location)
        tries = 0 if late is None or _is_sent(senders[n], late) else cursors[n].tries + 1
        if tries:
            # It is not tried again in this tick.
            ready.remove(n)
        if tries >= MAX_TRIES:
            _log.error(
                "databuild: the alert for want %s is given up after %d tries: %s", want_id, tries, _name(senders[n])
            )
        is_left = 0 < tries < MAX_TRIES
        cursors[n] = msgspec.structs.replace(cursors[n], tries=tries) if is_left else _Sent(after.seq, after.entry)
        if late is not None:
            keep()
            # Checked after the alert, so that each tick sends at least one.
            if monotonic() >= until:
                break
    follower.rest(keep())


def _late_wants(follower: LogFollower[_AllSent], cursor: Cursor) -> Iterator[Step[str]]:
    """The wants for which an alert was not sent yet, within its stretch of the log."""

    def wants(event: e.Event) -> tuple[str, ...]:
        assert isinstance(event.fact, e.WantSlaMissed)
        return event.fact.want_ids

    return steps(follower.events(cursor, ("WantSlaMissed",)), cursor, follower.last_seq(cursor), wants)


def _late(engine: Engine, want_id: str, location: str) -> LateWant | None:
    """None if a different location alerts for it: a want over several locations belongs to the location of its first ref."""
    (want,) = engine.queries.wants.named(want_id)
    spec = engine.queries.datasets.get(asset_of(want.refs[0]))
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
        _log.warning(
            "databuild: the alert for want %s failed and is retried: %s", late.want_id, _name(alert), exc_info=True
        )
        return False
    return True


def _name(alert: Alert) -> str:
    """A user's own alert may have a repr with secrets."""
    return repr(alert) if isinstance(alert, LogAlert | WebhookAlert | CommandAlert) else type(alert).__name__


class AlertAttributes(Model, Resolvable):
    """Where an alert about a missed SLA is sent: a webhook or a command."""

    webhook: Annotated[str | None, described("A url that JSON is POSTed to."), Field(repr=False)] = None
    headers: Annotated[Mapping[str, str], described("Headers of the webhook's request."), Field(repr=False)] = {}
    command: Annotated[
        Sequence[str] | None,
        described("A program with its arguments, given JSON on its stdin."),
        Field(repr=False),
    ] = None

    def alert(self, place: str) -> Alert:
        """Raises `InvalidAsset` unless exactly one of `webhook` and `command` is given."""
        if self.webhook is not None and self.command is None:
            return WebhookAlert(self.webhook, self.headers)
        if self.command and self.webhook is None and not self.headers:
            return CommandAlert(tuple(self.command))
        raise InvalidAsset(
            f"{place} gives an alert that is not one webhook, with or without headers, or one command; "
            "write an entry of its own for each."
        )


def _of_files(entries: Iterable[AlertAttributes], place: str) -> tuple[Alert, ...]:
    return tuple(entry.alert(place) for entry in entries)


ALERTS: Final = Setting[tuple[Alert, ...]](
    name="alerts",
    default=lambda: (),
    checked=lambda alerts, place: tuple(alerts),
    in_yaml=Sequence[AlertAttributes],
    yaml_default=(),
    description="Where alerts about missed SLAs are sent, besides the orchestrator's log.",
    from_yaml=_of_files,
)
SETTINGS: Final = (ALERTS,)
