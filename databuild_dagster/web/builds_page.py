"""The page Builds: open and ended job runs, and the success rate and the durations of a job."""

from typing import Any, Final

from databuild_dagster.model.states import JobRunState
from databuild_dagster.web.routes import Ask, or_error

#: Bars of durations, the newest last.
MAX_BARS: Final = 100


def show(ask: Ask, values: dict[str, Any]) -> dict[str, Any]:
    """The values of the template. The job runs of a job or partition include ended job runs."""
    values["ended"] = values["ended"] or any(values[name] for name in ("job", "ref", "in_state"))
    found, error = or_error(lambda: ask("builds", **values))
    savings = ask("savings")
    runs = [build for build in found or () if build["seconds"] is not None]
    bars = runs[MAX_BARS - 1 :: -1] if values["job"] else []
    return {
        "values": values,
        "found": found,
        "error": error,
        "is_counted": savings["is_counted"],
        "metrics": savings["jobs"].get(values["job"]),
        "bars": bars,
        "longest": max((bar["seconds"] for bar in bars), default=0.0),
        "states": [state.value for state in JobRunState],
    }
