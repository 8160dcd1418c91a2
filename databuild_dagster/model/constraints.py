"""Constraints over the rows of a partition, as data (rule 9.8, validate).

| constraint         | a row offends when                                                              |
|--------------------|---------------------------------------------------------------------------------|
| not_null           | the column is null                                                              |
| unique             | a second row of the partition has the same values, none of them null            |
| range              | the column is below `low` or above `high`; both ends belong to the range        |
| regex              | the text holds no match                                                         |
| accepted_values    | the column, as text, is none of the values                                      |
| expression         | the SQL expression is false                                                     |
| narrow_type        | the value would be different, or none, as the narrower type                    |

As for a CHECK of SQL, null offends only `not_null`.
"""

import math
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from databuild_dagster.model.errors import Refused

#: Decimal numbers, dates and times, as people type them.
Bound = int | float | str


class BadConstraint(Refused):
    """{what} cannot be checked: {why}."""

    hint = "{form}"


class Constraint(msgspec.Struct, frozen=True, tag_field="rule", forbid_unknown_fields=True):
    """A condition on each row. `rule` names its type, in records too."""

    @property
    def text(self) -> str:
        """The condition as messages show it."""
        raise NotImplementedError

    @property
    def columns_named(self) -> tuple[str, ...]:
        """The columns that have to exist; Spark finds the columns of an expression."""
        return ()


class OfColumn(Constraint, frozen=True):
    """A constraint on a column."""

    column: str

    @property
    def columns_named(self) -> tuple[str, ...]:
        return (self.column,)


class NotNull(OfColumn, frozen=True, tag="not_null"):
    """`--not-null carrier`"""

    @property
    def text(self) -> str:
        return f"{self.column} is not null"


class Unique(Constraint, frozen=True, tag="unique"):
    """`--unique year,month,day,flight`"""

    columns: tuple[str, ...]

    @property
    def text(self) -> str:
        return f"({', '.join(self.columns)}) is unique"

    @property
    def columns_named(self) -> tuple[str, ...]:
        return self.columns


class Range(OfColumn, frozen=True, tag="range"):
    """`--range dep_delay=-120:1500`; an end that is left out is open."""

    low: Bound | None = None
    high: Bound | None = None

    @property
    def text(self) -> str:
        if self.low is None:
            return f"{self.column} <= {self.high}"
        return f"{self.column} >= {self.low}" if self.high is None else f"{self.low} <= {self.column} <= {self.high}"


class Regex(OfColumn, frozen=True, tag="regex"):
    """`--regex tailnum=^N`, in Java's regular expressions"""

    pattern: str

    @property
    def text(self) -> str:
        return f"{self.column} matches {self.pattern}"


class AcceptedValues(OfColumn, frozen=True, tag="accepted_values"):
    """`--accepted-values origin=EWR,JFK,LGA`"""

    values: tuple[str, ...]

    @property
    def text(self) -> str:
        return f"{self.column} is one of {', '.join(self.values)}"


class Expression(Constraint, frozen=True, tag="expression"):
    """`--expression "arr_delay is null or air_time > 0"`"""

    sql: str

    @property
    def text(self) -> str:
        return self.sql


class NarrowType(OfColumn, frozen=True, tag="narrow_type"):
    """`--narrow-type flight=smallint`"""

    type: str

    @property
    def text(self) -> str:
        return f"{self.column} fits {self.type}"


AnyConstraint = NotNull | Unique | Range | Regex | AcceptedValues | Expression | NarrowType

#: Each rule, its text behind an option, and its entry in a file.
FORMS: dict[str, tuple[str, str]] = {
    "not_null": ("COLUMN", "not_null: carrier"),
    "unique": ("COLUMN,COLUMN…", "unique: [year, month, day]"),
    "range": ("COLUMN=LOW:HIGH", "range: {column: dep_delay, low: -120, high: 1500}"),
    "regex": ("COLUMN=PATTERN", "regex: {column: tailnum, pattern: ^N}"),
    "accepted_values": ("COLUMN=VALUE,VALUE…", "accepted_values: {column: origin, values: [EWR, JFK, LGA]}"),
    "expression": ("SQL", "expression: air_time > 0"),
    "narrow_type": ("COLUMN=TYPE", "narrow_type: {column: flight, type: smallint}"),
}

#: Errors that Python's and Java's regular expressions have in common.
_BAD_PATTERN = re.compile("missing \\)|unbalanced|unterminated|nothing to repeat|min repeat|end of pattern")
#: The largest number of a rule that is no float: records hold no longer numbers.
_MAX_INT = 2**63 - 1
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
#: The field of a rule with a single value.
_ONLY_FIELD = {"not_null": "column", "unique": "columns", "expression": "sql"}
_SECOND_FIELD = {"regex": "pattern", "accepted_values": "values", "narrow_type": "type"}


def typed_constraint(rule: str, text: str) -> AnyConstraint:
    """The constraint of an option and its text: `("range", "dep_delay=-120:1500")`. Raises `BadConstraint`."""
    form, _ = FORMS[rule]
    option = f"--{rule.replace('_', '-')}"

    def bad(why: str) -> BadConstraint:
        return BadConstraint(what=f"{option} {text!r}", why=why, form=f"Write {option} {form}.")

    if rule in _ONLY_FIELD:
        value: Any = _values(text) if rule == "unique" else text.strip()
        return _constraint({"rule": rule, _ONLY_FIELD[rule]: value}, bad)
    column, equals, rest = (part.strip() for part in text.partition("="))
    if not equals:
        raise bad("it has no = between the column and the rest")
    fields: dict[str, Any] = {"rule": rule, "column": column}
    if rule == "range":
        low, colon, high = rest.partition(":")
        if not colon:
            raise bad("it has no : between the ends of the range")
        fields |= {"low": _bound(low), "high": _bound(high)}
    else:
        fields[_SECOND_FIELD[rule]] = _values(rest) if rule == "accepted_values" else rest
    return _constraint(fields, bad)


def listed_constraints(entries: Any, where: str) -> tuple[AnyConstraint, ...]:
    """The constraints of a file: a list, or `{"rules": list}`, each entry a rule with its facts. Raises `BadConstraint`."""
    if isinstance(entries, Mapping):
        entries = entries.get("rules")
    if not isinstance(entries, Sequence) or isinstance(entries, str) or not entries:
        form = f"Write a list, as in `- {FORMS['not_null'][1]}`, below `rules:`."
        raise BadConstraint(what=where, why="it is not a list of rules", form=form)
    return tuple(_listed(entry, f"rule {place} of {where}") for place, entry in enumerate(entries, 1))


def _listed(entry: Any, where: str) -> AnyConstraint:
    form = "Write one of " + "; ".join(f"`- {shown}`" for _, shown in FORMS.values()) + "."
    if not isinstance(entry, Mapping) or len(entry) != 1:
        raise BadConstraint(what=where, why="it does not name one rule", form=form)
    ((rule, facts),) = entry.items()
    if rule not in FORMS:
        raise BadConstraint(what=where, why=f"there is no rule {rule!r}", form=form)

    def bad(why: str) -> BadConstraint:
        return BadConstraint(what=where, why=why, form=f"Write `- {FORMS[rule][1]}`.")

    if rule in _ONLY_FIELD and not isinstance(facts, Mapping):
        value = [facts] if rule == "unique" and isinstance(facts, str) else facts
        return _constraint({"rule": rule, _ONLY_FIELD[rule]: value}, bad)
    if not isinstance(facts, Mapping):
        raise bad(f"the facts of {rule} are not a mapping")
    facts = dict(facts)
    if isinstance(values := facts.get("values"), Sequence) and not isinstance(values, str):
        for value in values:
            if not isinstance(value, str | int | float) and not _is_time(value):
                raise bad(f"{_in_yaml(value)} is no value: it accepts texts, numbers, dates and times")
        facts["values"] = [_as_text(value) for value in values]
    facts |= {end: _as_text(facts[end]) for end in ("low", "high") if _is_time(facts.get(end))}
    return _constraint({"rule": rule, **facts}, bad)


def _is_time(value: Any) -> bool:
    """YAML reads 2013-01-01 as a date."""
    return hasattr(value, "isoformat")


def _in_yaml(value: Any) -> str:
    return "null" if value is None else repr(value)


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value.isoformat()) if _is_time(value) else str(value)


def _constraint(fields: dict[str, Any], bad: Any) -> AnyConstraint:
    try:
        found: AnyConstraint = msgspec.convert(fields, AnyConstraint)
        msgspec.json.encode(found)
    except msgspec.ValidationError as error:
        raise bad(str(error).lower().rstrip(".")) from None
    except UnicodeEncodeError:
        raise bad("a text of it is no UTF-8") from None
    if why := why_senseless(found):
        raise bad(why)
    return found


def why_senseless(constraint: AnyConstraint) -> str:
    """The fault of a constraint for any columns; empty without a fault. Code can make senseless constraints."""
    match constraint:
        case Unique(columns=columns) if not columns or len(set(columns)) != len(columns):
            return "it names no column, or one twice"
        case Range(low=None, high=None):
            return "both ends are open"
        case Range(low=low, high=high) if not (_is_finite(low) and _is_finite(high)):
            return "an end is no finite number of 64 bits"
        case Range(low=low, high=high) if _is_number(low) and _is_number(high) and float(low or 0) > float(high or 0):
            return "its low end is above its high end"
        case AcceptedValues(values=()):
            return "it accepts nothing"
        case Expression(sql="") | NarrowType(type="") | Regex(pattern=""):
            return "there is nothing to check"
        case Regex(pattern=pattern) if why := _why_no_pattern(pattern):
            return f"its pattern is none: {why}"
    return "" if all(constraint.columns_named) else "a column has no name"


def _is_number(bound: Bound | None) -> bool:
    return isinstance(bound, int | float)


def _is_finite(bound: Bound | None) -> bool:
    """The end is open, a date, a time or a text, or a number that records hold: neither NaN nor infinite."""
    if isinstance(bound, int):
        return abs(bound) <= _MAX_INT
    try:
        return bound is None or math.isfinite(float(bound))
    except ValueError:
        return True


def _why_no_pattern(pattern: str) -> str:
    """The fault that a pattern has in any language; empty without a fault."""
    try:
        with warnings.catch_warnings(action="ignore"):
            re.compile(pattern)
    except re.error as error:
        return str(error) if _BAD_PATTERN.search(str(error)) else ""
    except RecursionError:
        return "it is nested too deeply"
    return ""


def _bound(text: str) -> Bound | None:
    text = text.strip()
    if not text:
        return None
    if not _NUMBER.fullmatch(text):
        return text
    return int(text) if re.fullmatch(r"[+-]?\d{1,19}", text) else float(text)


def _values(text: str) -> list[str]:
    return [value.strip() for value in text.split(",") if value.strip()]
