"""Files of rules, and rules as options. Each is refused as such, or a rule that records can hold (rule 9.8)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import yaml

from databuild_dagster.data.home import BadYaml, read_yaml
from databuild_dagster.model.constraints import (
    FORMS,
    AnyConstraint,
    BadConstraint,
    listed_constraints,
    typed_constraint,
)

from .values import NUMBERS, TEXTS, TIMES, any_text, mutated, mutated_bytes

NAME = "rules"
N_IN_CI = 800

RULES: list[dict[str, Any]] = [
    {"not_null": "carrier"},
    {"unique": ["year", "month"]},
    {"range": {"column": "delay", "low": -120, "high": 1500.5}},
    {"regex": {"column": "tailnum", "pattern": "^N"}},
    {"accepted_values": {"column": "origin", "values": ["EWR", "JFK", 1]}},
    {"expression": "air_time > 0"},
    {"narrow_type": {"column": "flight", "type": "smallint"}},
]
#: YAML that Python's loader reads as something other than text.
ODD = (
    *(
        ".nan",
        ".inf",
        "-.inf",
        "null",
        "~",
        "yes",
        "0x1f",
        "0o17",
        "1_000",
        "190:20:30",
        "2024-02-30",
        "2024-01-01 25:61:61",
    ),
    *(
        "!!int '_'",
        "!!float x",
        "!!bool x",
        "!!timestamp x",
        "!!binary x",
        "!!set {a, b}",
        "!!omap [a: 1]",
        "!!python/none x",
    ),
    *(
        "&a [*a]",
        "*a",
        "<<: 3",
        "? [a]\n: b",
        "2024-01-01",
        "2024-01-01 10:00:00 +99:00",
        "!x y",
        "|\n  a",
        "a: b: c",
        "\t",
    ),
)


class Rules:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "rules.yaml"

    def make(self, random: Random) -> dict[str, Any]:
        if random.random() < 0.3:
            rule = random.choice(list(FORMS))
            column = random.choice(("a=", "a,b=", "=", ""))
            rest = random.choice((any_text(random), f"{random.choice(NUMBERS)}:{random.choice((*NUMBERS, *TIMES))}"))
            return {"rule": rule, "text": column + rest}
        rules = random.sample(RULES, random.randrange(1, 4))
        if random.random() < 0.5:
            rules = mutated(random, rules)
        text = yaml.safe_dump(random.choice((rules, {"rules": rules}))) if _is_dumpable(rules) else "[" * 600
        if random.random() < 0.5:
            line = random.choice(text.splitlines() or [""])
            text = text.replace(line, line.partition(":")[0] + ": " + random.choice((*ODD, *TEXTS)), 1)
        return (
            {"bytes": mutated_bytes(random, text.encode(errors="replace")).decode("latin-1")}
            if random.random() < 0.3
            else {"file": text}
        )

    def feed(self, given: dict[str, Any]) -> None:
        try:
            if "rule" in given:
                found: tuple[AnyConstraint, ...] = (typed_constraint(given["rule"], given["text"]),)
            else:
                contents = (
                    given["bytes"].encode("latin-1")
                    if "bytes" in given
                    else given["file"].encode(errors="surrogatepass")
                )
                self.path.write_bytes(contents)
                found = listed_constraints(read_yaml(self.path), "rules.yaml")
        except (BadConstraint, BadYaml) as refused:
            assert str(refused)
            return
        for constraint in found:
            assert constraint.text
            assert msgspec.json.decode(msgspec.json.encode(constraint), type=AnyConstraint) == constraint


def _is_dumpable(rules: Any) -> bool:
    try:
        yaml.safe_dump(rules).encode()
    except (UnicodeEncodeError, yaml.YAMLError):
        return False
    return True


@contextmanager
def ready(folder: Path) -> Iterator[Rules]:
    yield Rules(folder)
