"""Which examples Hypothesis tries: the same in every run, so that a run fails because of a change and not by chance.

With `DATABUILD_LONG` in the environment it tries others each time, and many more.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants


def choose_examples() -> None:
    """For all tests of the process: before a test module is imported, because its decorators copy the settings."""
    quiet = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much]
    if os.environ.get("DATABUILD_LONG"):
        settings.register_profile(
            "long", max_examples=1500, stateful_step_count=60, deadline=None, suppress_health_check=quiet
        )
        settings.load_profile("long")
        return
    settings.register_profile(
        "ci", max_examples=40, stateful_step_count=25, deadline=None, derandomize=True, suppress_health_check=quiet
    )
    settings.load_profile("ci")
    # Hypothesis also draws constants of the modules that are loaded. These depend on the tests that ran before.
    providers._get_local_constants = Constants
