"""Sentences of the engine as a page shows them."""

from __future__ import annotations

import html
import re
import shlex

import pytest

from databuild_dagster.model.wording import typed
from databuild_dagster.web.rendering import brief, duration, sentence, utc

UUID = "5cecaca6-8b07-12ac-2609-45b691f0f547"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"instance {UUID}: x", f'instance <span class="mono" title="{UUID}">91f0f547</span>: x'),
        (f"wrong ({UUID})", f'wrong (<span class="mono" title="{UUID}">91f0f547</span>)'),
        (f"dagster run {UUID}", f'dagster run <span class="mono" title="{UUID}">5cecaca6</span>'),
        (
            "live since 2026-11-25T13:43:57Z",
            'live since <time datetime="2026-11-25T13:43:57Z">2026-11-25 13:43:57 UTC</time>',
        ),
    ],
)
def test_an_id_and_a_time_of_the_engine_have_a_short_form(text: str, shown: str) -> None:
    assert brief(text) == shown


@pytest.mark.parametrize(
    "text", [f"no customer {UUID}", f"({UUID}) is no customer", f"instance {UUID}0", "at 2026-11-25T13:43:57Z", ""]
)
def test_the_ids_and_times_of_other_texts_are_left_as_they_are(text: str) -> None:
    assert brief(text) == text


def test_a_text_with_markup_is_escaped_around_the_short_forms() -> None:
    shown = sentence(f"<b>job run {UUID}</b> `databuild show <i>`")

    assert shown == (
        f'&lt;b&gt;job run <span class="mono" title="{UUID}">91f0f547</span>&lt;/b&gt; <code>databuild show &lt;i&gt;</code>'
    )


@pytest.mark.parametrize("key", ["a`b", "a`b`c", "it's `a`", 'say "`"'])
def test_a_command_keeps_the_backticks_of_a_name(key: str) -> None:
    shown = sentence(f"{key}: `databuild retry {typed(f'sales@{key}')}` opens `it`")

    commands = re.findall("<code>(.*?)</code>", html.unescape(shown))
    assert [shlex.split(command) for command in commands[-2:]] == [["databuild", "retry", f"sales@{key}"], ["it"]]


def test_a_sentence_with_half_a_command_has_no_code() -> None:
    assert sentence("it said `oops") == "it said `oops"


@pytest.mark.parametrize(
    ("at", "shown"),
    [
        ("2026-11-25T13:43:57Z", "2026-11-25 13:43:57 UTC"),
        ("2026-11-25T13:43:57.123456+00:00", "2026-11-25 13:43:57 UTC"),
        ("2026-11-25", "2026-11-25"),
    ],
)
def test_a_time_is_shown_to_the_second_with_its_zone(at: str, shown: str) -> None:
    assert utc(at) == shown


@pytest.mark.parametrize(
    ("unit", "shown"),
    [("PT1H", "1 hour"), ("PT15M", "15 minutes"), ("P1D", "1 day"), ("P2W", "2 weeks"), ("P1M", "P1M"), ("", "")],
)
def test_the_unit_of_lots_is_shown_in_words(unit: str, shown: str) -> None:
    assert duration(unit) == shown
