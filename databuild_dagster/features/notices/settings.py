"""`alerts=`: the setting of a code location that sends missed SLAs elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final

from dagster import Model, Resolvable
from pydantic import Field

from databuild_dagster.bindings.declare.parameters import InvalidAsset
from databuild_dagster.bindings.declare.settings import Setting, described
from databuild_dagster.features.notices.alerts import Alert, CommandAlert, WebhookAlert


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
        """Raises `InvalidAsset` unless exactly one of both is given."""
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
