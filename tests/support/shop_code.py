"""A small project whose function `orders` reaches all kinds of code, and edits of it, for rule 4.7.

Imports the standard library alone, so that each version of Python can compute the digests of the same sources.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

#: The functions of the project with a digest, and what is loaded to get them.
ROOTS = ("orders", "doubled", "shortened", "made", "matched")

PROJECT = {
    "shop/__init__.py": "",
    "shop/rates.py": '''
from decimal import Decimal

BASE = 3
RATE = Decimal("0.2")
BY_NAME = {"a": BASE, "b": [1, 2, 3], "c": {"x", "y"}}
NAMES: list[str] = []
NAMES.append("first")


def rate_of(name, default=0):
    """The rate of a name."""
    found = BY_NAME.get(name, default)
    return found * RATE if found else -1
''',
    "shop/cleaning.py": '''
import re
from dataclasses import dataclass, field
from enum import Enum
from functools import partial, wraps
from pathlib import Path

from shop import rates as prices
from .rates import rate_of

QUERY = (Path(__file__).parent / "orders.sql").read_text()
SPACES = re.compile("[ ]+")


class Kind(Enum):
    NEW = "new"
    OLD = "old"


class Base:
    factor = 2

    def scaled(self, value):
        return value * self.factor


@dataclass
class Cleaner(Base):
    """Cleans."""

    kind: Kind = Kind.NEW
    steps: list = field(default_factory=list)

    def clean(self, text):
        """One text."""
        shorter = SPACES.sub(" ", text).strip()
        if self.kind is Kind.OLD:
            shorter = shorter.lower()
        return shorter

    @property
    def size(self):
        return self.scaled(len(self.steps) + 1)

    @staticmethod
    def pair(first, second):
        return first, second


def repeated(times):
    def decorate(function):
        @wraps(function)
        def wrapper(*args, **kwargs):
            result = None
            for _ in range(times):
                result = function(*args, **kwargs)
            return result

        return wrapper

    return decorate


def multiplier(factor):
    def multiplied(value, plus=factor):
        total = value * factor
        return total + plus

    return multiplied


triple = multiplier(3)
halved = partial(divmod, 2)
shorten = lambda text, most=5: text[:most]
CLEANER = Cleaner(Kind.OLD, ["a", "b"])


@repeated(2)
def price(name, *, extra=prices.BASE):
    return rate_of(name) + extra + len(prices.NAMES)
''',
    "shop/orders.sql": "select a from orders where b > 1\n",
    "shop/assets.py": '''
"""The assets."""

from __future__ import annotations

import math
import statistics
from functools import lru_cache

from shop import cleaning
from shop.cleaning import CLEANER, Cleaner, price, shorten, triple

LIMIT = 10
PAIRS = [("a", 1), ("b", 2)]


@lru_cache(maxsize=4)
def cached(value: int) -> int:
    return value + LIMIT


def orders(raw: list, name: str = "a", /, *rest, limit: int = LIMIT, **options):
    """The orders."""
    total = 0
    kept = [row for row in raw if row > limit]
    for number, (label, amount) in enumerate(PAIRS):
        weight = triple(amount) - number
        total += weight if label != name else -weight
    with open_span(name) as span:
        span.add(total)
    try:
        mean = statistics.mean(kept)
    except statistics.StatisticsError as error:
        mean = float(len(str(error)))
    nested = sorted(kept, key=lambda item: (item % 3, -item))

    def inner(value):
        nonlocal total
        total += value
        return math.floor(mean) + total

    if (first := next(iter(nested), None)) is not None:
        inner(first)
    by_label = {label: price(label) for label, _ in PAIRS}
    text = f"{CLEANER.clean(name)!r:>{limit}} {total=} {cleaning.QUERY}" "end"
    while total > 100 and not rest:
        total //= 2
    return text, by_label, cached(3), shorten(text, 7), Cleaner.pair(1, 2.5), options.get("x", b"y"), CLEANER.size


class open_span:
    def __init__(self, name):
        self.name = name

    def __enter__(self):
        return set()

    def __exit__(self, *raised):
        return False


def doubled(value):
    return cleaning.triple(value) * 2


shortened = shorten


def made(name):
    from shop.rates import rate_of as rate

    def local(value):
        return rate(value) + 1

    found: int = local(name)
    assert found, f"{name} has no rate"
    del name
    return [*map(str, (found, -0.0, 1j, ..., None, True))]


async def matched(value):
    match value:
        case {"a": first, **others} if first:
            return first, others
        case [1, *tail] | (2 as tail):
            return tail
        case str(text) | bytes(text):
            return [letter async for letter in text]
        case _:
            return value[1:2, ...], (lambda: (yield 1))


def unused(value):
    return value + 12345


UNUSED = 12345
''',
    "shop/unused.py": "VALUE = 1\n",
}
#: Equal in every version of Python.
DIGESTS = {
    "orders": "tree-1:f3303ec549a2c0353383d11c1fcc8417",
    "doubled": "tree-1:a4e27195f0bb0d3a9618ae0b414887eb",
    "shortened": "tree-1:6266f24c7a1492ce1092b677716b936f",
    "made": "tree-1:31d09b4e9134c81ea3be92111edb2e60",
    "matched": "tree-1:0981921f133183adc1f407b56c969c56",
}


def write(project: Mapping[str, str], folder: Path) -> None:
    """Write the files of a project."""
    for name, text in project.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def loaded(folder: Path) -> Any:
    """The module `shop.assets` of a folder, loaded anew."""
    forget()
    sys.path.insert(0, str(folder))
    try:
        return import_module("shop.assets")
    finally:
        sys.path.remove(str(folder))


def forget() -> None:
    """Forget the modules of the project."""
    for name in [name for name in sys.modules if name == "shop" or name.startswith("shop.")]:
        del sys.modules[name]


class Edit(NamedTuple):
    """A changed project."""

    name: str
    file: str
    text: str


def cosmetic_edits() -> Iterator[Edit]:
    """Edits that change no code."""
    for file, text in PROJECT.items():
        if not file.endswith(".py") or not text:
            continue
        lines = text.split("\n")
        for place in _between_statements(text):
            indent = lines[place][: len(lines[place]) - len(lines[place].lstrip())]
            yield Edit(f"comment at line {place}", file, "\n".join([*lines[:place], f"{indent}# Why.", *lines[place:]]))
        yield Edit("unparsed", file, ast.unparse(ast.parse(text)))
        yield Edit("blank lines", file, text.replace("\n", "\n\n\n", 1))
        yield Edit("more that is not reached", file, f"{text}\n\nMORE_THAT_IS_NOT_REACHED = 1\n")
    assets, cleaning = PROJECT["shop/assets.py"], PROJECT["shop/cleaning.py"]
    for file, text, names in (
        (
            "shop/assets.py",
            assets,
            "total kept number amount weight span mean error nested first found tail others letter",
        ),
        ("shop/cleaning.py", cleaning, "shorter result"),
        ("shop/rates.py", PROJECT["shop/rates.py"], "found"),
    ):
        for name in names.split():
            if name == "total":
                continue  # The text `{total=}` names it.
            yield Edit(f"local {name}", file, _renamed(text, name))
        for old, new in (
            ('"""The orders."""', '"""Other words."""'),
            ('    """The orders."""\n', ""),
            ('"""Cleans."""', "'''Cleans well.'''"),
            ('    """The rate of a name."""\n', '    """The rate."""\n'),
            ("(value % 3)", "value % 3"),
            ('"end"', "'e' 'nd'"),
            ('"a"', "'a'"),
            ("12345", "54321"),
            ("10\n", "1_0\n"),
            ("1, 2, 3]", "1,\n    2, 3,]"),
        ):
            if old in text:
                yield Edit(f"{old!r} as {new!r}", file, text.replace(old, new))


def _between_statements(text: str) -> list[int]:
    """Lines before which a comment may stand, also in a function."""
    starts = {node.lineno for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt)}
    return sorted(line - 1 for line in starts)


def _renamed(text: str, name: str) -> str:
    """A local under a new name in all places; names of arguments and texts stay."""
    tree = ast.parse(text)
    places = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == name:
            places.append((node.lineno, node.col_offset))
    lines = text.split("\n")
    for line, column in sorted(places, reverse=True):
        row = lines[line - 1]
        lines[line - 1] = row[:column] + f"{name}_again" + row[column + len(name) :]
    renamed = "\n".join(lines)
    for word in (f"as {name}:", f'"a": {name},', f"**{name}", f"*{name}]", f"as {name})", f"nonlocal {name}\n"):
        renamed = renamed.replace(word, word.replace(name, f"{name}_again"))
    return renamed


_OTHER = {
    "Add": "-", "Sub": "+", "Mult": "+", "FloorDiv": "*", "Mod": "*",
    "Gt": "<", "NotEq": "==", "Is": "is not", "IsNot": "is",
}  # fmt: skip


def changing_edits() -> Iterator[Edit]:
    """Edits of code that `orders`, `made` or `matched` reach, each of which may change what these return."""
    yield Edit("the data file", "shop/orders.sql", "select a from orders where b > 2\n")
    for file, text in PROJECT.items():
        if file.endswith(".py") and "unused" not in file:
            yield from _changed_constants(file, text)
            yield from _changed_operators(file, text)
            yield from _removed_statements(file, text)
            yield from _changed_expressions(file, text)
    for file, old, new in (
        ("shop/assets.py", "@lru_cache(maxsize=4)\n", ""),
        ("shop/assets.py", "import math\n", "import cmath as math\n"),
        ("shop/assets.py", "import CLEANER, Cleaner, price, shorten, triple", "import CLEANER, Cleaner, price, shorten, halved as triple"),
        ("shop/assets.py", "limit: int", "limit: float"),
        ("shop/assets.py", "raw: list, name", "raw: list, title"),
        ("shop/assets.py", "-item)", "item)"),
        ("shop/assets.py", "row for row in raw if", "row for row in reversed(raw) if"),
        ("shop/assets.py", "first, others", "others, first"),
        ("shop/assets.py", "(value) + 1", "(value) + 1 + value"),
        ("shop/assets.py", "async for letter", "for letter"),
        ("shop/assets.py", "!r:>", "!s:>"),
        ("shop/assets.py", ":>{limit}", ":<{limit}"),
        ("shop/assets.py", "except statistics.StatisticsError", "except Exception"),
        ("shop/assets.py", "mean(kept)", "median(kept)"),
        ("shop/assets.py", "mean(kept)", "mean(raw)"),
        ("shop/assets.py", "b\"y\"", "\"y\""),
        ("shop/assets.py", "def inner(value)", "def inner_part(value)"),
        ("shop/cleaning.py", "class Cleaner(Base)", "class Cleaner"),
        ("shop/cleaning.py", "@dataclass\n", "@dataclass(frozen=True)\n"),
        ("shop/cleaning.py", "@staticmethod\n    def pair(first", "@classmethod\n    def pair(cls, first"),
        ("shop/cleaning.py", "@property\n", ""),
        ("shop/cleaning.py", "@repeated(2)\n", ""),
        ("shop/cleaning.py", "@repeated(2)", "@repeated(3)"),
        ("shop/cleaning.py", "Kind = Kind.NEW", "Kind = Kind.OLD"),
        ("shop/cleaning.py", "Cleaner(Kind.OLD", "Cleaner(Kind.NEW"),
        ("shop/cleaning.py", "multiplier(3)", "multiplier(4)"),
        ("shop/cleaning.py", "plus=factor", "plus=value"),
        ("shop/cleaning.py", "plus=factor", "plus=1"),
        ("shop/cleaning.py", "total + plus", "total - plus"),
        ("shop/cleaning.py", "most=5", "most=6"),
        ("shop/cleaning.py", "text[:most]", "text[most:]"),
        ("shop/cleaning.py", '"[ ]+"', '"[ ]+", re.IGNORECASE'),
        ("shop/cleaning.py", "CLEANER = Cleaner", "Cleaner.factor = 5\nCLEANER = Cleaner"),
        ("shop/cleaning.py", "CLEANER = Cleaner", "Cleaner.scaled = lambda self, value: value\nCLEANER = Cleaner"),
        ("shop/cleaning.py", '["a", "b"])', '["a", "b"])\nCLEANER.steps.append("c")'),
        ("shop/cleaning.py", "triple = multiplier(3)", "from math import sqrt as triple"),
        ("shop/cleaning.py", ".strip()", ".lstrip()"),
        ("shop/cleaning.py", "extra=prices.BASE", "extra=prices.RATE"),
        ("shop/rates.py", 'NAMES.append("first")', 'NAMES.append("last")'),
        ("shop/rates.py", "def rate_of", "BY_NAME['a'] = 9\n\n\ndef rate_of"),
        ("shop/rates.py", "def rate_of", "for _ in range(2):\n    NAMES.append('x')\n\n\ndef rate_of"),
        ("shop/rates.py", 'Decimal("0.2")', 'Decimal("0.20")'),
        ("shop/rates.py", "default=0", "default=False"),
        ("shop/rates.py", '{"x", "y"}', '("x", "y")'),
    ):  # fmt: skip
        text = PROJECT[file]
        assert old in text, (file, old)
        yield Edit(f"{old!r} to {new!r}", file, text.replace(old, new))


def _reached(text: str) -> Iterator[ast.AST]:
    """Nodes but docstrings and what is not reached."""
    for statement in ast.parse(text).body:
        if getattr(statement, "name", "") in ("unused", "doubled") or "unused" in ast.unparse(statement).lower():
            continue
        if ast.unparse(statement).startswith(("from", "import", "halved", "shortened")):
            continue
        docstrings = {
            id(node.value)
            for node in ast.walk(statement)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        in_texts = {
            id(part) for node in ast.walk(statement) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)
        }
        for node in ast.walk(statement):
            if id(node) not in docstrings and id(node) not in in_texts:
                yield node


def _replaced(text: str, node: Any, new: str) -> str:
    lines = text.encode().split(b"\n")
    first, last = node.lineno - 1, node.end_lineno - 1
    before, after = lines[first][: node.col_offset], lines[last][node.end_col_offset :]
    return b"\n".join([*lines[:first], before + new.encode() + after, *lines[last + 1 :]]).decode()


def _changed_constants(file: str, text: str) -> Iterator[Edit]:
    for node in _reached(text):
        if not isinstance(node, ast.Constant):
            continue
        value = node.value
        match value:
            case bool():
                other: Any = not value
            case int() | float() | complex():
                other = value + 1
            case str():
                other = f"{value}1"
            case bytes():
                other = value + b"1"
            case _:
                other = 1
        if file == "shop/cleaning.py" and value == "orders.sql":
            continue
        yield Edit(f"{value!r} at line {node.lineno} to {other!r}", file, _replaced(text, node, repr(other)))


def _changed_operators(file: str, text: str) -> Iterator[Edit]:
    for node in _reached(text):
        if isinstance(node, ast.BinOp | ast.Compare):
            operator = node.op if isinstance(node, ast.BinOp) else node.ops[0]
            other = _OTHER.get(type(operator).__name__)
            left, right = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.left, node.comparators[0])
            if other is not None:
                new = f"({ast.unparse(left)}) {other} ({ast.unparse(right)})"
                yield Edit(f"{ast.unparse(node)} to {new}", file, _replaced(text, node, new))


def _changed_expressions(file: str, text: str) -> Iterator[Edit]:
    for node in _reached(text):
        changed: dict[ast.expr, str] = {}
        match node:
            case ast.If() | ast.IfExp() | ast.While():
                changed[node.test] = f"(not ({ast.unparse(node.test)}))"
            case ast.Return(value=ast.expr() as value):
                changed[value] = f"({ast.unparse(value)}, 1)"
            case ast.Call(args=[ast.Starred(), *_]):
                pass
            case ast.Call(args=[first, *_]):
                changed[first] = f"[{ast.unparse(first)}]"
            case ast.For() | ast.comprehension():
                changed[node.iter] = f"list({ast.unparse(node.iter)})"
        for part, new in changed.items():
            yield Edit(f"{ast.unparse(part)} to {new}", file, _replaced(text, part, new))


def _removed_statements(file: str, text: str) -> Iterator[Edit]:
    """Each statement of a function left out; a name that it binds is None."""
    functions = (node for node in _reached(text) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    for function in functions:
        for statement in function.body:
            is_docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            if is_docstring or isinstance(statement, ast.Nonlocal | ast.FunctionDef | ast.ImportFrom):
                continue
            stored = {
                node.id
                for node in ast.walk(statement)
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            }
            new = " = ".join([*sorted(stored), "None"])
            yield Edit(f"{function.name} without line {statement.lineno}", file, _replaced(text, statement, new))
