"""Sentences of the engine as a page shows them: commands as code, ids by their short form, times without a T.

Every value is escaped. The markup is `<code>`, `<span>` and `<time>`, and the whole id is in the title of its short form.
"""

from __future__ import annotations

import re
from typing import Final

from markupsafe import Markup, escape

from databuild_dagster.store.queries.ids import short_id

#: The letters of a Dagster run's id that Dagster shows.
RUN_LETTERS: Final = 8
#: An id behind the word that the engine puts before it; the ids in the text of a person's code are left as they are.
_UUID: Final = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_ID: Final = rf"\b(?P<kind>(?:instance|job run|[Dd]agster run|want|taint|request|want for it,) )(?P<id>{_UUID})\b"
#: The reason of a taint ends with its id.
_LAST: Final = rf"\((?P<last>{_UUID})\)$"
_TIME: Final = r"\b(?P<word>since|until) (?P<at>(?P<day>\d{4}-\d\d-\d\d)T(?P<clock>\d\d:\d\d:\d\d)(?:\.\d+)?Z)(?!\w)"
_SHORTENED: Final = re.compile(f"{_ID}|{_LAST}|{_TIME}")
_CAMEL: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
_AT: Final = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?(?:Z|\+00:00)")
_DURATION: Final = re.compile(r"P(?:(?P<weeks>\d+)W|(?P<days>\d+)D|T(?P<hours>\d+)H|T(?P<minutes>\d+)M)")


def sentence(text: str) -> Markup:
    """A sentence with its commands, which are between backticks, as code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return brief(text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if place % 2 else brief(part) for place, part in enumerate(parts)
    )


def brief(text: str) -> Markup:
    """A text with the short forms of the engine's ids and times."""
    shown, end = Markup(""), 0
    for found in _SHORTENED.finditer(text):
        shown += escape(text[end : found.start()]) + _shortened(found)
        end = found.end()
    return shown + escape(text[end:])


def words(name: str) -> str:
    """The name of a state in words: `UpstreamFailed` is "upstream failed"."""
    return _CAMEL.sub(" ", name).lower()


def utc(at: str) -> str:
    """A time to the second with its zone; a text that is no time as it is."""
    found = _AT.fullmatch(at)
    return f"{found[1]} {found[2]} UTC" if found else at


def duration(iso: str) -> str:
    """The unit of lots in words: `PT1H` is "1 hour"; another text as it is."""
    found = _DURATION.fullmatch(iso)
    if found is None:
        return iso
    unit = str(found.lastgroup)
    return f"1 {unit.removesuffix('s')}" if found[unit] == "1" else f"{found[unit]} {unit}"


def _shortened(found: re.Match[str]) -> Markup:
    if found["id"]:
        is_run = found["kind"].lower() == "dagster run "
        short = found["id"][:RUN_LETTERS] if is_run else short_id(found["id"])
        return Markup('{}<span class="mono" title="{}">{}</span>').format(found["kind"], found["id"], short)
    if found["last"]:
        return Markup('(<span class="mono" title="{}">{}</span>)').format(found["last"], short_id(found["last"]))
    shown = Markup('{} <time datetime="{}">{} {} UTC</time>')
    return shown.format(found["word"], found["at"], found["day"], found["clock"])
