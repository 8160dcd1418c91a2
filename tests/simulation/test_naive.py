"""The engine beside a model that anybody can check by reading it: they agree about everything, all the time."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

from tests.support import fixtures  # noqa: F401  (the profiles)

from .steps.arrival_steps import ArrivalSteps
from .steps.claim_steps import ClaimSteps
from .steps.pause_steps import PauseSteps
from .steps.story_steps import StorySteps
from .steps.taint_steps import TaintSteps

pytestmark = [pytest.mark.long("hundreds of storms take their time"), pytest.mark.timeout(300)]

LONG = bool(os.environ.get("DATABUILD_LONG"))


class EngineAndModel(StorySteps, TaintSteps, ClaimSteps, PauseSteps, ArrivalSteps):
    """All steps."""


TestCompared = EngineAndModel.TestCase
TestCompared.settings = settings(
    settings.get_profile("long" if LONG else "ci"),
    max_examples=2000 if LONG else 120,
    stateful_step_count=60 if LONG else 40,
)
