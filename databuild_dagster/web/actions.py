"""The table of all actions. The pages have a button for some of them, and a program may call each."""

from __future__ import annotations

from typing import Final

from databuild_dagster.web.action import Action
from databuild_dagster.web.data_actions import PAUSE, RESUME, REVERT, TAINT, UNTAINT
from databuild_dagster.web.operation_actions import OPERATION_CANCEL, OPERATION_START
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
    OPERATION_START,
    OPERATION_CANCEL,
)
BY_NAME: Final[dict[str, Action]] = {action.name: action for action in ACTIONS}
