"""Whether a person tries a schedule or a sensor out: the UI shows what it returns, and nothing comes of that.

So nothing may be recorded either: launches that a trial has buffered would hold their leases and never start.
"""

import re

from dagster import ScheduleEvaluationContext, SensorEvaluationContext

#: In the place of a tick's id; a time, which Dagster makes up where no tick of its own asks.
_MADE_UP = re.compile(r"\d{8}_\d{6}")


def is_dry_run(context: SensorEvaluationContext | ScheduleEvaluationContext) -> bool:
    """True for the UI's test button; false for the daemon's ticks, whose log is named after the tick."""
    log_key = context.log_key or [""]
    return _MADE_UP.fullmatch(log_key[-1]) is not None
