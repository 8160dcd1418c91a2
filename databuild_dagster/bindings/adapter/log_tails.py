"""What prints a step's output as it comes, for whoever stands at a terminal, lives in a session of its own.

Dagster starts it. Ctrl-C at a terminal is a signal to every process of ours; those would answer it with tracebacks, and
be gone before the step has said its last words.
"""

import subprocess
from functools import partial
from types import SimpleNamespace

from databuild_dagster.bindings.adapter.dagster_private import module_that_starts_log_tails


def shield_log_tails() -> None:
    """Steps of this process are printed so from now on. Twice is once; who is killed is noticed as before."""
    in_its_own_session = partial(subprocess.Popen, start_new_session=True)
    module_that_starts_log_tails().subprocess = SimpleNamespace(Popen=in_its_own_session)
