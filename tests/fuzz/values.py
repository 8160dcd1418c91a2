"""Values that programs stumble over, for every target."""

from __future__ import annotations

from random import Random
from typing import Any

NUMBERS = (
    *("0", "1", "-1", "00", "+1", "1_0", "1.5", "1e3", "1e400", "-1e400", "0x10", "٣", "²", "Infinity", "-inf", "nan"),
    *(str(2**n + more) for n in (31, 32, 63, 64) for more in (-1, 0, 1)),
    *("-9223372036854775809", "10000000000000000000", "9" * 400, "9" * 5000, "0." + "1" * 400),
)
TIMES = (
    *("2024-01-30", "2024-02-30", "2024-13-01", "99999-01-01", "0000-01-01", "-2024-01-01", "2024-01-30T25:61:61Z"),
    *("2024-01-30T00:00:00Z", "2024-02-30T00:00:00Z", "99999-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00"),
    *("9999-12-31T23:59:59-14:00", "1969-12-31T23:59:59Z", "2024-W05-2", "2024-01-30T00:00:00+99:00", "yesterday"),
    *(
        "2024-01-30T00:00:00.123456789Z",
        "90s",
        "0s",
        "12h",
        "7d",
        "9999999999d",
        "1e9d",
        "none",
        "90 s",
        "-5m",
        "9" * 400 + "s",
    ),
)
TEXTS = (
    *(
        "",
        " ",
        "\t\n",
        "a",
        "-",
        "--",
        "é→",
        "\U0001f600",
        "\0",
        "a\0b",
        "\ud800",
        "x\udcff",
        "\u202e",
        "\x1b[31m",
        "\r",
    ),
    *(
        "'",
        '"',
        "`",
        "$(id)",
        "%s%n",
        "{}",
        "{0}",
        "[red]",
        "\\",
        "*",
        "?",
        "[",
        "]",
        "(",
        ",",
        ";",
        "=",
        ":",
        "#",
        "|",
    ),
    *("a" * 300, "a" * 10_000, "é" * 200, "/".join("a" * 2000), "null", "true", "None", "select 1; drop table x"),
)
PATHS = (
    *(
        "/",
        "/dev/null",
        "/dev/full",
        "/proc/self/mem",
        "/proc/self/environ",
        ".",
        "..",
        "../..",
        "~",
        "~root",
        "~no-one/x",
        "~\0",
    ),
    *(
        "nowhere",
        "nowhere/x",
        "a" * 300,
        "a" * 10_000,
        "a/" * 3000,
        "a\0b",
        "\udcff",
        "*",
        "**/*",
        "[",
        "{a,b}",
        "home",
    ),
    *(
        "file:///tmp",
        "s3://",
        "s3:///x",
        "S3:/x",
        "http://[",
        "://",
        "ftp://x/y",
        "memory://x",
        "definitions.py",
        "home/databuild.db",
    ),
)


def any_text(random: Random) -> str:
    """A value of any table, or several of them in one."""
    table = random.choice((NUMBERS, TIMES, TEXTS, PATHS))
    return random.choice(table) if random.random() < 0.9 else random.choice(table) + random.choice(TEXTS)


def any_json(random: Random, depth: int = 3) -> Any:
    """A JSON value, of any shape."""
    match random.randrange(8 if depth else 6):
        case 0:
            return None
        case 1:
            return random.choice((True, False))
        case 2:
            return random.choice((0, 1, -1, 2**31, 2**63, 2**64, -(2**63) - 1, 10**400, 1.5, -0.0, 1e308))
        case 3 | 4 | 5:
            return any_text(random)
        case 6:
            return [any_json(random, depth - 1) for _ in range(random.randrange(4))]
        case _:
            return {any_text(random): any_json(random, depth - 1) for _ in range(random.randrange(4))}


def mutated(random: Random, value: Any) -> Any:
    """A JSON value with one change somewhere in it."""
    if isinstance(value, dict) and value and random.random() < 0.8:
        name = random.choice(list(value))
        match random.randrange(6):
            case 0:
                return {key: item for key, item in value.items() if key != name}
            case 1:
                return {**value, any_text(random): any_json(random)}
            case _:
                return {**value, name: mutated(random, value[name])}
    if isinstance(value, list) and value and random.random() < 0.8:
        place = random.randrange(len(value))
        match random.randrange(6):
            case 0:
                return value[:place] + value[place + 1 :]
            case 1:
                return [*value, value[place]]
            case _:
                return [*value[:place], mutated(random, value[place]), *value[place + 1 :]]
    if isinstance(value, str) and value and random.random() < 0.4:
        place = random.randrange(len(value))
        return value[:place] + random.choice(("", "\0", "\ud800", "/", "../", "é", "0", " ")) + value[place + 1 :]
    if isinstance(value, int | float) and not isinstance(value, bool) and random.random() < 0.4:
        return random.choice((-value, value + 1, value * 2, value * 10**18 if abs(value) < 10**18 else 0, str(value)))
    return any_json(random)


def mutated_bytes(random: Random, contents: bytes) -> bytes:
    """Bytes with a bit flipped, a part missing, or a part that is something else."""
    if not contents:
        return random.randbytes(8)
    place = random.randrange(len(contents))
    end = min(len(contents), place + random.choice((1, 2, 8, 64)))
    match random.randrange(5):
        case 0:
            return contents[:place] + bytes([contents[place] ^ (1 << random.randrange(8))]) + contents[place + 1 :]
        case 1:
            return contents[:place]
        case 2:
            return contents[:place] + contents[end:]
        case 3:
            return contents[:end] + contents[place:]
        case _:
            return contents[:place] + random.randbytes(end - place) + contents[end:]
