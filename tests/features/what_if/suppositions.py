"""A question about some refs, asked as the command and the page ask it."""

from __future__ import annotations

from collections.abc import Sequence

from databuild_dagster.features.what_if.answers import Question, WhatIf
from databuild_dagster.features.what_if.questions import if_code_changes, if_missing, if_tainted
from databuild_dagster.model.refs import Ref, asset_of
from tests.support.world import World


def ask(world: World, question: Question, refs: Sequence[Ref], *, downstream: bool) -> WhatIf:
    match question:
        case Question.TAINT:
            return if_tainted(world.engine, refs, downstream=downstream)
        case Question.CODE:
            return if_code_changes(world.engine, asset_of(refs[0]))
        case Question.MISSING:
            return if_missing(world.engine, refs)
