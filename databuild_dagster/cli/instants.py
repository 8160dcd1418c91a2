"""Times as people write them: ISO 8601 with an offset, 2026-11-21T14:00:00Z."""

from __future__ import annotations

from datetime import UTC, datetime

import click


class Instant(click.ParamType[float]):
    """A text like 2026-11-21T14:00:00+01:00 becomes seconds since 1970 UTC."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float | None:  # type: ignore[override]
        if value is None or isinstance(value, float):
            return value
        try:
            told = datetime.fromisoformat(str(value).strip())
        except ValueError:
            self.fail(f"{value!r} is no time; write 2026-11-21T14:00:00Z.", param, ctx)
        if told.utcoffset() is None:
            self.fail(f"{value!r} does not say in which time zone; write 2026-11-21T14:00:00Z.", param, ctx)
        try:
            return told.astimezone(UTC).timestamp()
        except OverflowError:
            self.fail(f"{value!r} lies outside of the years 1 to 9999.", param, ctx)


INSTANT = Instant()
