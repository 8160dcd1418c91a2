"""Times and durations as people write them: 2026-11-21T14:00:00Z with an offset; 90s, 15m, 12h, 7d, none."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import click

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Duration(click.ParamType[float]):
    """A text like 12h becomes seconds; `none` becomes None."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float | None:  # type: ignore[override]
        if value is None or isinstance(value, float | int):
            return value
        text = str(value).strip().lower()
        if text == "none":
            return None
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd]?)", text)
        if match is None or float(match[1]) == 0:
            self.fail(f"{value!r} is no duration; write 90s, 15m, 12h, 7d or none.", param, ctx)
        return float(match[1]) * _SECONDS[match[2] or "s"]


DURATION = Duration()


class Instant(click.ParamType[float]):
    """A text like 2026-11-21T14:00:00+01:00 becomes seconds since 1970 UTC."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float | None:  # type: ignore[override]
        if value is None or isinstance(value, float):
            return value
        try:
            local = datetime.fromisoformat(str(value).strip())
        except ValueError:
            self.fail(f"{value!r} is no time; write 2026-11-21T14:00:00Z.", param, ctx)
        if local.utcoffset() is None:
            self.fail(f"{value!r} does not say in which time zone; write 2026-11-21T14:00:00Z.", param, ctx)
        try:
            return local.astimezone(UTC).timestamp()
        except OverflowError:
            self.fail(f"{value!r} lies outside of the years 1 to 9999.", param, ctx)


INSTANT = Instant()
