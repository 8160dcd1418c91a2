"""The rules of prose that `make check` knows (house style, 8)."""

from pathlib import Path

import pytest

from tools.prose import faults

PAGE = Path("docs/page.md")


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        (f"# Lots\n\nShort. A {'word ' * 41}end.\n", 3, "a sentence of 43 words"),
        (f"| a | b |\n|---|---|\n| x | {'word ' * 41}|\n", 3, "a sentence of 41 words"),
        ("One.\n\n```py\ncode\n```\nTwo.\n- What is done\n  is kept.\n", 7, "a sentence begins with What"),
        ("## It failed\n", 1, "a heading names its subject"),
        ("It waits for\never.\n", 1, "“for ever”: name the time"),
        ("The job run was [cancelled](x.md).\n", 1, "“cancelled”: canceled"),
    ],
)
def test_a_fault_names_the_line_and_the_rule(text: str, line: int, why: str) -> None:
    (found,) = faults(PAGE, text)

    assert (found.line, found.why[: len(why)]) == (line, why)


@pytest.mark.parametrize(
    "text",
    [
        f"{'word ' * 30}; {'word ' * 30}.\n",
        f"- {'word ' * 30}\n- {'word ' * 30}\n",
        "```console\nWhat goes on for ever\n```\n<!--What-->",
        "What is a want?\n\n## What is a want\n",
        "`databuild anew` is quoted, and 1 2 3 4 are no words.\n",
    ],
)
def test_code_questions_and_lists_have_no_fault(text: str) -> None:
    assert list(faults(PAGE, text)) == []
