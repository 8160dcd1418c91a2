"""From values to HTML: the templates' environment, their filters, and the urls of pages and of Dagster.

Every value is escaped. The only markup that Python makes is that of sentences of the engine, whose commands are code, ids short, and
times without a T: `<code>`, `<span>` and `<time>`, with the whole id in the title of its short form.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from databuild_dagster.calls.calendar import MARKS
from databuild_dagster.engine.why.alike import alike_causes
from databuild_dagster.engine.why.explain import Cause
from databuild_dagster.model.refs import Ref, asset_of, partition_key_of
from databuild_dagster.model.wording import few_of, in_environment, state_in_words, typed
from databuild_dagster.store.queries.asking import MAX_COUNTED
from databuild_dagster.store.queries.ids import short_id
from databuild_dagster.web.parameters import MAX_QUERY_BYTES

TEMPLATES: Final = Path(__file__).parent / "templates"
#: Deeper causes are not moved further to the right.
MAX_INDENT: Final = 6
#: Units of a span of time, each with its seconds; the largest of which there are two is used.
_UNITS: Final = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
#: What an event says of its refs.
_EVENT_WORDS: Final = {
    "WantCreated": "wanted",
    "WantKept": "kept the wants of inputs for a retry",
    "WantCanceled": "canceled a want",
    "WantExpired": "let a want expire",
    "WantSlaMissed": "missed a deadline",
    "JobRunBuffered": "launched",
    "JobRunStarted": "started",
    "JobRunSucceeded": "built",
    "JobRunDepMissed": "missed inputs",
    "JobRunFailed": "failed",
    "JobRunLost": "lost",
    "JobRunCanceled": "canceled",
    "JobRunSkipped": "skipped",
    "PartitionDelegated": "joined or reused",
    "TaintCreated": "tainted",
    "TaintCanceled": "untainted",
    "CanonicalReverted": "reverted",
    "InstancesReturned": "took back earlier instances",
    "PartitionsPaused": "paused",
    "PartitionsResumed": "resumed",
    "ManifestRemoved": "removed data",
    "RemovalFinished": "finished a removal",
    "LotArrived": "recorded files",
    "InstancesBorrowed": "borrowed instances of the base",
    "InstancesPromoted": "promoted instances of an environment",
    "ArcFired": "woke a subscriber",
    "DatasetRegistered": "registered",
    "SetAsideChanged": "set aside",
    "MetaInvoked": "worked on operations",
    "MetaCompacted": "compacted",
}
#: The mark that colours a state of an instance, a want or a job run.
_MARK_OF_STATE: Final = {
    "Live": "live",
    "Successful": "live",
    "Succeeded": "live",
    "Building": "building",
    "Running": "building",
    "Queued": "wanted",
    "UpstreamBuilding": "waiting",
    "UpForRetry": "waiting",
    "DepMissed": "waiting",
    "Idle": "wanted",
    "New": "wanted",
    "Tainted": "tainted",
    "Failed": "failed",
    "Lost": "failed",
    "UpstreamFailed": "upstream failed",
    # Of a request.
    "Executing": "building",
    "Completed": "live",
    # Of a lot of an arc, an operation and a delegation.
    "complete": "live",
    "running": "building",
    # Of an environment.
    "opening": "building",
    "moved": "failed",
    "open": "live",
    "closing": "waiting",
    "partial": "partial",
    "success": "live",
    "failed": "failed",
    "waiting": "waiting",
    "live": "live",
    "refused": "failed",
    "built": "empty",
    "joined": "building",
    "reused": "live",
}


class CauseLine(NamedTuple):
    """The sentences about a ref and about similar refs, and their indent."""

    #: The refs that have the sentences, and the refs that have similar sentences.
    refs: Sequence[str]
    alike: Sequence[str]
    sentences: Sequence[str]
    indent: int
    #: The wants that job runs recorded for the refs.
    wanted_by: Sequence[dict[str, Any]]


class Urls:
    """The urls of pages, of files, and of Dagster's pages, below the path prefix of the web server."""

    def __init__(self, path_prefix: str, mount: str) -> None:
        self._dagster = path_prefix
        self._root = path_prefix + mount

    @property
    def root(self) -> str:
        return self._root

    def page(self, path: str, **query: object) -> str:
        """A page's url, with the parameters that have a value."""
        given = {name: value for name, value in query.items() if value not in (None, "", 0, False)}
        texts = {name: "true" if value is True else str(value) for name, value in given.items()}
        return f"{self._root}{path}" + (f"?{urlencode(texts, quote_via=quote)}" if texts else "")

    def action(self, name: str, back: str, values: Mapping[str, object]) -> str:
        """The confirmation of an action; a list repeats its parameter.

        If the url would be too long, the confirmation leads back to the first page.
        """
        given = {field: value for field, value in values.items() if value not in (None, "", False)}
        texts = {field: "true" if value is True else value for field, value in given.items()}
        query = urlencode(texts | {"back": back}, doseq=True, quote_via=quote)
        if len(query) > MAX_QUERY_BYTES:
            query = urlencode(texts, doseq=True, quote_via=quote)
        return f"{self._root}/confirm/{name}?{query}"

    def file(self, name: str) -> str:
        return f"{self._root}/static/{name}"

    def dagster(self) -> str:
        return f"{self._dagster}/"

    def dagster_asset(self, ref: Ref) -> str:
        """Dagster's page of an asset, with the partition if the ref has one."""
        path = "/".join(quote(segment, safe="") for segment in asset_of(ref).split("/"))
        key = partition_key_of(ref)
        return f"{self._dagster}/assets/{path}?view=partitions" + (f"&{urlencode({'partition': key})}" if key else "")

    def dagster_run(self, run_id: str, step: str | None = None, at: str | None = None, log: str | None = None) -> str:
        """Dagster's page of a run: at a step and a time in its log, or with what the run printed, `stdout` or `stderr`."""
        given = {"logs": step and f"step:{step}", "selection": step, "logType": log}
        query = {name: value for name, value in given.items() if value}
        if at is not None:
            query["focusedTime"] = str(round(datetime.fromisoformat(at).timestamp() * 1000))
        return f"{self._dagster}/runs/{quote(run_id, safe='')}" + (
            f"?{urlencode(query, quote_via=quote)}" if query else ""
        )


def make_environment(
    urls: Urls, *, folders: Iterable[Path] = (), takes_away: Collection[str] = (), named: str | None = None
) -> Environment:
    """The environment of the templates; a misspelled name raises.

    `folders` are the features' template folders, and `takes_away` the names of actions whose buttons are red. `named` is the
    environment whose build state the pages show: commands on them name it, because nobody knows where they are typed.
    """
    environment = Environment(
        loader=FileSystemLoader([TEMPLATES, *folders]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(
        urls=urls,
        marks=MARKS,
        mark_of_state=mark_of_state,
        cause_lines=cause_lines,
        few_of=few_of,
        now=now,
        takes_away=takes_away,
        databuild="databuild" if named is None else f"databuild --env {named}",
    )
    environment.filters.update(
        ago=ago,
        seconds=lasts,
        percent=lambda rate: "–" if rate is None else f"{rate:.1%}",
        size=size,
        n=with_commas,
        up_to=up_to,
        short=short_id,
        sentence=sentence if named is None else lambda text: sentence(in_environment(text, named)),
        brief=brief,
        typed=typed,
        words=state_in_words,
        utc=utc,
        duration=duration,
        capital=lambda text: text[:1].upper() + text[1:],
        asset=asset_of,
        key=partition_key_of,
        event_words=lambda kind: _EVENT_WORDS.get(kind, kind),
        css=lambda mark: mark.replace(" ", "-"),
        json=json_text,
        groupby_run=lambda items, name: [(key, list(found)) for key, found in groupby(items, itemgetter(name))],
        package=lambda file: file.partition("/")[0],
    )
    return environment


def now() -> datetime:
    return datetime.now(UTC)


def mark_of_state(state: str | None) -> str:
    """The mark that colours a state; the plain mark for a state without a colour."""
    return "missing" if state is None else _MARK_OF_STATE.get(state, "missing")


def cause_lines(causes: Sequence[dict[str, Any]], derivative_wants: Sequence[dict[str, Any]] = ()) -> list[CauseLine]:
    """A line for each cause of a ref, with the similar refs behind it."""
    return [
        CauseLine(
            found.refs if found.is_same else found.refs[:1],
            [] if found.is_same else found.refs[1:],
            found.sentences,
            min(found.depth, MAX_INDENT),
            [want for want in derivative_wants if not set(found.refs).isdisjoint(want["refs"])],
        )
        for found in alike_causes(Cause(**cause) for cause in causes)
    ]


def ago(at: str) -> str:
    """The time since then, or until then; a time outside of the calendar as it is."""
    try:
        then = datetime.fromisoformat(at)
    except ValueError:
        return at
    seconds = (now() - then).total_seconds()
    return f"in {span(-seconds)}" if seconds <= -1 else f"{span(seconds)} ago"


def span(seconds: float) -> str:
    """A span of time in a single unit."""
    unit, n = next(((unit, n) for unit, n in _UNITS if seconds >= 2 * n), _UNITS[-1])
    return f"{max(seconds, 0) // n:.0f} {unit}"


def lasts(seconds: float) -> str:
    """A duration in a single unit."""
    return "under 1 s" if 0 < seconds < 1 else span(seconds)


def size(n_bytes: int | None) -> str:
    """Bytes in a unit that people read."""
    if n_bytes is None:
        return "–"
    value = float(n_bytes)
    for unit in ("bytes", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:,.0f} {unit}" if unit == "bytes" else f"{value:,.1f} {unit}"
        value /= 1000
    return f"{value:,.1f} TB"


def json_text(value: object) -> str:
    """A value of a configuration; escaped as any other text."""
    return json.dumps(value, ensure_ascii=False, default=str)


def with_commas(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def up_to(value: int) -> str:
    """A count that ends at `MAX_COUNTED`."""
    return f"{MAX_COUNTED:,}+" if value > MAX_COUNTED else f"{value:,}"


def counted(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """Counts by mark, the worst first."""
    return [(mark, counts[mark]) for mark in MARKS if counts.get(mark)]


#: The letters of a Dagster run's id that Dagster shows.
RUN_LETTERS: Final = 8
#: An id behind the word that the engine puts before it; the ids in the text of a person's code are left as they are.
_UUID: Final = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_ID: Final = rf"\b(?P<kind>(?:instance|job run|[Dd]agster run|want|taint|request|want for it,) )(?P<id>{_UUID})\b"
#: The reason of a taint ends with its id.
_LAST: Final = rf"\((?P<last>{_UUID})\)$"
_TIME: Final = r"\b(?P<word>since|until) (?P<at>(?P<day>\d{4}-\d\d-\d\d)T(?P<clock>\d\d:\d\d:\d\d)(?:\.\d+)?Z)(?!\w)"
_COMMAND: Final = re.compile(r"""`(databuild (?:'[^']*'|"[^"]*"|[^`'"])*)`""")
_SHORTENED: Final = re.compile(f"{_ID}|{_LAST}|{_TIME}")
_AT: Final = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?(?:Z|\+00:00)")
_DURATION: Final = re.compile(r"P(?:(?P<weeks>\d+)W|(?P<days>\d+)D|T(?P<hours>\d+)H|T(?P<minutes>\d+)M)")


def sentence(text: str) -> Markup:
    """A sentence with its commands, which are between backticks, as code. A quoted name may hold backticks."""
    parts = enumerate(_COMMAND.split(text))
    return Markup("").join(_as_code(part) if place % 2 else _marked(part) for place, part in parts)


def _marked(text: str) -> Markup:
    """The same of a text without commands of ours."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return brief(text)
    return Markup("").join(_as_code(part) if place % 2 else brief(part) for place, part in enumerate(parts))


def _as_code(text: str) -> Markup:
    return Markup("<code>{}</code>").format(text)


def brief(text: str) -> Markup:
    """A text with the short forms of the engine's ids and times."""
    shown, end = Markup(""), 0
    for found in _SHORTENED.finditer(text):
        shown += escape(text[end : found.start()]) + _shortened(found)
        end = found.end()
    return shown + escape(text[end:])


def utc(at: str) -> str:
    """A time to the second with its zone; a text that is no time as it is."""
    found = _AT.fullmatch(at)
    return f"{found[1]} {found[2]} UTC" if found else at


def duration(iso: str) -> str:
    """The unit of lots in words: `PT1H` is "1 hour"; any other text is returned unchanged."""
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
