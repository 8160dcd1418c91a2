"""The table of all actions: those of the core, and those that the features bring.

The pages have a button for some of them, and a program may call each.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from databuild_dagster.feature import rows
from databuild_dagster.web.action import Action
from databuild_dagster.web.data_actions import PAUSE, RESUME, REVERT, TAINT, UNTAINT
from databuild_dagster.web.want_actions import CANCEL, CANCEL_JOB_RUN, RETRY, WANT

ACTIONS: Final[tuple[Action, ...]] = (
    WANT,
    CANCEL,
    CANCEL_JOB_RUN,
    RETRY,
    PAUSE,
    RESUME,
    TAINT,
    UNTAINT,
    REVERT,
)


@cache
def actions() -> tuple[Action, ...]:
    """The actions of the core and of the features."""
    return (*ACTIONS, *rows(lambda feature: feature.actions))
