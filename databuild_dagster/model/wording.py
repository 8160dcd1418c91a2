"""Names and times as messages show them."""

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from databuild_dagster.model.redaction import text_of, without_secrets

#: Characters at the end of an id that tables print for it, and the fewest that name it on the command line.
SHORT_ID = 8
#: Letters of a foreign program's text, such as an exception's, that a message quotes.
MAX_QUOTED = 300
#: Letters of a value that a message quotes, such as an argument of the command line. A ref has fewer.
MAX_VALUE = 1_200
#: Digits of a number that a message quotes; a number of ours has fewer.
MAX_DIGITS = 40
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_COMMAND = re.compile(r"(`databuild [^`]*`)")
#: The beginning of a command that a text prints to copy: between backticks, or at the end, behind a colon. `env` works on the base.
_COPIED = re.compile(r"(?:(?<=`)|(?<=: ))databuild (?=[a-z]|…)(?!env )")
_LONG_NUMBER = re.compile(rf"\d{{{MAX_DIGITS + 1},}}")
#: 0001-01-01T00:00:00Z and 9999-12-31T23:59:59Z, in seconds since 1970 UTC: no program can show a time beyond them.
FIRST_TIME = -62_135_596_800.0
LAST_TIME = 253_402_300_799.0


def few_of(names: Sequence[str], most: int = 5) -> str:
    """Such as: a, b, c and 4 more."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def state_in_words(name: str) -> str:
    """The stored name of a state, such as `UpstreamFailed`, as people read it: "upstream failed" (rule 15)."""
    return _CAMEL.sub(" ", name).lower()


def typed(*names: object) -> str:
    """Names, such as refs and ids, as part of a command that a shell and the command line read back; its options come before.

    A name may begin with a dash, as an option does: `--` ends the options.
    """
    texts = [str(name) for name in names]
    return ("-- " if any(text.startswith("-") for text in texts) else "") + shlex.join(texts)


class _Typed(dict[str, Any]):
    """Facts, each as a command has it."""

    def __getitem__(self, name: str) -> str:
        fact = super().__getitem__(name)
        return typed(*(fact if isinstance(fact, tuple) else (fact,)))


def filled(template: str, facts: Mapping[str, Any]) -> str:
    """A template with its facts, which are `typed` within a command between backticks."""
    parts = _COMMAND.split(template)
    return "".join(part.format_map(_Typed(facts) if place % 2 else facts) for place, part in enumerate(parts))


def in_environment(text: str, name: str) -> str:
    """A text whose commands work in an environment, wherever they are typed."""
    return _COPIED.sub(lambda _: f"databuild --env {typed(name)} ", text)


def mid_sentence(sentence: str) -> str:
    """A sentence that begins with no name, as a part of a longer sentence."""
    return sentence[:1].lower() + sentence[1:]


def one_line(text: object, most: int | None = MAX_QUOTED) -> str:
    """A text of several lines, such as an exception's, as part of a sentence without secrets; None for all of it."""
    line = " ".join(without_secrets(text_of(text)).split())
    return line if most is None else shortened(line, most)


def shortened(text: str, most: int) -> str:
    """The text, or its first sentences, or its first letters if its sentences are long; `most` letters and an ellipsis."""
    if len(text) <= most:
        return text
    end = text.rfind(". ", most // 2, most) + 1
    return text[:end] if end else f"{text[:most]}…"


def numbers_cut(text: str) -> str:
    """The text with the beginning of each long number, so that the end of the sentence stays."""
    return _LONG_NUMBER.sub(lambda found: f"{found[0][:MAX_DIGITS]}… ({len(found[0]):,} digits)", text)


def number_in_words(value: float) -> str:
    """A number as a message quotes it. Python refuses to print a whole number of more than 4,300 digits."""
    if not isinstance(value, int) or abs(value) < 10**MAX_DIGITS:
        return str(value)
    n_digits = int((value.bit_length() - 1) * math.log10(2)) + 1
    n_digits += abs(value) >= 10**n_digits
    return f"{'a negative' if value < 0 else 'a'} number of {n_digits:,} digits"


def utf8(text: str) -> str:
    """The text with what UTF-8 cannot hold escaped: half of a surrogate pair, as Python has it for a file name in Latin-1."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def is_utf8(text: str) -> bool:
    """UTF-8 holds the text: it has no half of a surrogate pair."""
    return utf8(text) == text


def counted(n: int, noun: str) -> str:
    """For example: 1 file, 4 files."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def has_date(at: float) -> bool:
    """A time has a date within the years 1 to 9999; infinity and NaN have none."""
    return FIRST_TIME <= at <= LAST_TIME
