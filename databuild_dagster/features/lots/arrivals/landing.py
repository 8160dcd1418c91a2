"""From `landing/flights_{time:%Y%m%dT%H%M}*.parquet` and a listing to the kind and the time of each file.

The text around the fields is a pattern of paths: `*`, `?` and `[…]` stay within a name, `**/` is any folders. The fields
are strftime's; together they are the event time, the beginning of the data in the file. Without `{time:…}` the time of
the last modification counts. A local time that the clocks show twice or never has two readings. Unfinished files are left out:
hidden files and folders, and the usual suffixes of temporary names.
"""

import re
import string
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cached_property

from databuild_dagster.model.errors import Refused
from databuild_dagster.warehouse.disk import Listed
from databuild_dagster.warehouse.files import whole_pattern
from databuild_dagster.warehouse.storage import protocol_of, storage_at

FIELD = "time"

#: strftime's fields, as regular expressions.
_FIELDS = {
    "%Y": r"\d{4}",
    "%m": r"\d{2}",
    "%d": r"\d{2}",
    "%j": r"\d{3}",
    "%H": r"\d{2}",
    "%M": r"\d{2}",
    "%S": r"\d{2}",
    "%f": r"\d{1,6}",
    "%z": r"Z|[+-]\d{2}:?\d{2}",
}
#: The fields of a time from its year downwards, without a gap; each with the seconds that it leaves open at most.
_LADDERS = (
    {"%Y": 366 * 86_400, "%m": 31 * 86_400, "%d": 86_400, "%H": 3_600, "%M": 60, "%S": 1, "%f": 0},
    {"%Y": 366 * 86_400, "%j": 86_400, "%H": 3_600, "%M": 60, "%S": 1, "%f": 0},
)
#: Names under which programs write before they rename.
TEMPORARY = (
    *("*.tmp", "*.temp", "*.part", "*.partial", "*.filepart", "*.crdownload"),
    *("*.inprogress", "*.swp", "*._COPYING_", "*~"),
)


class BadLandingPattern(Refused):
    """The pattern {pattern!r} does not assign files to lots of {asset}: {why}."""

    hint = "Write it as in files='landing/flights_{{time:%Y%m%dT%H%M}}*.parquet', or set by='modified'."


@dataclass(frozen=True)
class LandingPattern:
    """A pattern for files of a folder and their times."""

    text: str
    asset: str
    timezone: tzinfo
    by_name: bool
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def check_works(self) -> None:
        """Check the pattern before anything is deployed. Raises `BadLandingPattern`."""
        fields = self._fields
        if self.by_name and not fields:
            raise self._bad(f"it has no {{{FIELD}:…}}")
        if not self.by_name and fields:
            raise self._bad("it has a time in the name, and the time of modification is to count")
        if self.by_name:
            self._check_ladder(fields)
        for glob in (*self.include, *self.exclude):
            if not glob or glob.startswith("/"):
                raise self._bad(f"{glob!r} is to match below its folder")
        try:
            made = self._meant, self._like, self._left_out, self._taken
        except re.error as error:
            raise self._bad(str(error)) from error
        assert made

    @property
    def resolution_seconds(self) -> int:
        """The seconds that a name leaves open; 0 for the time of modification."""
        if not self.by_name:
            return 0
        whole_year = _LADDERS[0]["%Y"]
        open_after = _LADDERS[1] | _LADDERS[0]
        return min(open_after.get(field, whole_year) for field in self._fields if field != "%z")

    @cached_property
    def folder(self) -> str:
        """The folder that is listed: the names of the pattern before the first with a wildcard or a field."""
        return self._split[0]

    def listed(self) -> list[Listed]:
        """Every file of the folder. Raises FileNotFoundError, `DiskTrouble`, `StorageTrouble`."""
        # The pattern decides whether files in folders of that folder can match.
        return storage_at(self.folder).list_files(self.folder, deep="/" in self._split[1])

    @property
    def is_object_store(self) -> bool:
        """Whether files appear whole."""
        return protocol_of(self.folder) is not None

    def is_meant(self, file: Listed) -> bool:
        """Whether a listed file matches, or matches but for its time, and is not excluded."""
        path = self._below_folder(file)
        is_like = self._meant.fullmatch(path) is not None or self._like.fullmatch(path) is not None
        return is_like and not self._is_left_out(path)

    def times_of(self, file: Listed) -> tuple[datetime, ...]:
        """The time of a file: none if its name has none, and two for a local time that the clocks show twice or never."""
        if (found := self._meant.fullmatch(self._below_folder(file))) is None:
            return ()
        if not self.by_name:
            return (datetime.fromtimestamp(file.modified, UTC),)
        at = _time_of(found.groupdict(), self.timezone)
        return () if at is None else self._readings(at)

    def _readings(self, at: datetime) -> tuple[datetime, ...]:
        other = at.replace(fold=1)
        if at.utcoffset() == other.utcoffset():
            return (at,)
        last = at + timedelta(seconds=self.resolution_seconds, microseconds=-1)
        # A day whose midnight the clocks skip begins with the first moment that they show.
        return (at,) if not exists(at) and exists(last) else (at, other)

    def _below_folder(self, file: Listed) -> str:
        return file.path[len(self.folder) + 1 :]

    # The pattern

    @cached_property
    def _fields(self) -> list[str]:
        specs = [spec for _, spec in self._parts if spec is not None]
        return [field for spec in specs for field in re.findall("%.", spec) if field != "%%"]

    @cached_property
    def _parts(self) -> list[tuple[str, str | None]]:
        """Each text with the field after it, None after the last."""
        try:
            parsed = list(string.Formatter().parse(whole_pattern(self.text)))
        except ValueError as error:
            raise self._bad(f"{error}; a brace that is meant is written twice") from error
        parts: list[tuple[str, str | None]] = []
        for literal, name, spec, conversion in parsed:
            if name is not None and (name != FIELD or not spec or conversion is not None):
                raise self._bad(f"only {{{FIELD}:…}} with strftime's fields has a meaning in braces")
            if unknown := [field for field in re.findall("%.?", spec or "") if field not in ("%%", *_FIELDS)]:
                raise self._bad(f"{unknown[0]} is none of {', '.join(_FIELDS)}")
            parts.append((literal, spec if name is not None else None))
        return parts

    @cached_property
    def _split(self) -> tuple[str, str]:
        """The folder, and the pattern below it with its fields."""
        whole = "".join(
            literal.replace("{", "{{").replace("}", "}}") + ("" if spec is None else f"{{{FIELD}:{spec}}}")
            for literal, spec in self._parts
        )
        scheme, separator, rest = whole.rpartition("://")
        names = rest.split("/")
        plain = 0
        while plain < len(names) - 1 and not re.search(r"[*?\[{]", names[plain]):
            plain += 1
        folder = scheme + separator + "/".join(names[:plain])
        if self.text.endswith("/"):
            raise self._bad("it ends with a folder, and files are meant")
        if separator and plain == 0:
            raise self._bad("the bucket has to be named")
        return folder, "/".join(names[plain:])

    @cached_property
    def _meant(self) -> re.Pattern[str]:
        seen: set[str] = set()
        return re.compile(self._below(lambda spec: _field_expression(spec, seen)))

    @cached_property
    def _like(self) -> re.Pattern[str]:
        """Paths that match but for their time."""
        return re.compile(self._below(lambda spec: "[^/]*" if "/" not in spec else ".*"))

    def _below(self, field: Callable[[str], str]) -> str:
        parsed = string.Formatter().parse(self._split[1])
        return "".join(
            glob_expression(literal) + ("" if name is None else field(spec or "")) for literal, name, spec, _ in parsed
        )

    @cached_property
    def _left_out(self) -> re.Pattern[str]:
        return _any_of((*TEMPORARY, *self.exclude))

    @cached_property
    def _taken(self) -> re.Pattern[str]:
        return _any_of(self.include)

    def _is_left_out(self, path: str) -> bool:
        names = path.split("/")
        if any(name.startswith((".", "_")) for name in names):
            return True
        # A pattern without a folder matches names.
        tried = {path, names[-1]}
        if any(self._left_out.fullmatch(text) for text in tried):
            return True
        return bool(self.include) and not any(self._taken.fullmatch(text) for text in tried)

    def _check_ladder(self, fields: Sequence[str]) -> None:
        used = set(fields) - {"%z"}
        if not any(used == set(list(ladder)[: len(used)]) for ladder in _LADDERS):
            order = "%Y, %m, %d (or %j), %H, %M, %S, %f"
            raise self._bad(f"{' '.join(dict.fromkeys(fields))} leaves a gap: write a time from the year down, {order}")

    def _bad(self, why: str) -> BadLandingPattern:
        return BadLandingPattern(pattern=self.text, asset=self.asset, why=why)


def exists(at: datetime) -> bool:
    """Whether the clocks of its zone show a time at least once: they skip an hour at a change to summer time."""
    return at.astimezone(UTC).astimezone(at.tzinfo).replace(tzinfo=None) == at.replace(tzinfo=None)


def glob_expression(glob: str) -> str:
    """The regular expression of a pattern of paths."""
    parts = re.findall(r"\*\*/|\*\*|\*|\?|\[[!^]?\]?[^\]/]*\]|.", glob, re.DOTALL)
    return "".join(map(_expression_of, parts))


def _any_of(globs: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{glob_expression(glob)})" for glob in globs))


#: The regular expressions of wildcards.
_WILDCARDS = {"**/": "(?:[^/]*/)*", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def _expression_of(part: str) -> str:
    if part.startswith("[") and len(part) > 1:
        negated = part[1] in "!^"
        inside = part[2 if negated else 1 : -1].replace("\\", "\\\\").replace("]", "\\]").replace("[", "\\[")
        return f"[{'^/' if negated else ''}{inside}]"
    return _WILDCARDS.get(part) or re.escape(part)


def _field_expression(spec: str, seen: set[str]) -> str:
    """The fields as named groups; a repeated field must repeat its text."""
    parts = []
    for part in re.findall("%.|[^%]+", spec):
        name = part[1:]
        if part == "%%" or part not in _FIELDS:
            parts.append(re.escape(part.replace("%%", "%")))
        elif part in seen:
            parts.append(f"(?P={name})")
        else:
            seen.add(part)
            parts.append(f"(?P<{name}>{_FIELDS[part]})")
    return "".join(parts)


def _time_of(found: dict[str, str], timezone: tzinfo) -> datetime | None:
    """The time of a name's fields; None for a time that does not exist, such as the 30th of February."""
    zone = timezone
    if offset := found.get("z"):
        zone = UTC if offset == "Z" else datetime.strptime(offset, "%z").tzinfo or UTC
    parts = [int(found.get(name, least)) for name, least in zip("YmdHMS", (1, 1, 1, 0, 0, 0), strict=True)]
    try:
        at = datetime(*parts, int(found.get("f", "0").ljust(6, "0")), tzinfo=zone)  # type: ignore[misc,arg-type]
        if (day := found.get("j")) is not None:
            year = at.year
            at += timedelta(days=int(day) - 1)
            if at.year != year:
                return None
    except (ValueError, OverflowError):
        return None
    return at
