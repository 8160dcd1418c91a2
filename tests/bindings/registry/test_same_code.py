"""Rule 4.7: the digest of a function's code is equal for the same code, and for no other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from databuild_dagster.bindings.registry.same_code import RULES, Code, CodeReader
from databuild_dagster.model.datasets import CODE_RULES
from tests.support import shop_code
from tests.support.shop_code import PROJECT, Edit

Load = Callable[[dict[str, str]], Any]


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Load]:
    """Loads the assets of a project, each time from a folder of its own."""
    n = 0

    def loaded(project: dict[str, str]) -> Any:
        nonlocal n
        n += 1
        shop_code.write(project, tmp_path / str(n))
        return shop_code.loaded(tmp_path / str(n))

    yield loaded
    shop_code.forget()


def codes_of(assets: Any) -> dict[str, Code]:
    reader = CodeReader()
    return {name: reader.code_of(getattr(assets, name)) for name in shop_code.ROOTS}


def edited(edit: Edit) -> dict[str, str]:
    assert edit.text != PROJECT[edit.file], edit
    return PROJECT | {edit.file: edit.text}


def test_every_version_of_python_has_these_digests(load: Load) -> None:
    found = codes_of(load(PROJECT))

    assert {name: code.unknown for name, code in found.items() if code.unknown} == {}
    assert {name: code.digest for name, code in found.items()} == shop_code.DIGESTS


def test_a_digest_begins_with_the_rules_that_the_model_knows() -> None:
    assert RULES == CODE_RULES


def test_cosmetic_edits_change_no_digest(load: Load) -> None:
    edits = list(shop_code.cosmetic_edits())

    differing = [
        (edit.file, edit.name)
        for edit in edits
        if {name: code.digest for name, code in codes_of(load(edited(edit))).items()} != shop_code.DIGESTS
    ]

    assert differing == []
    assert len(edits) >= 120


def test_no_change_of_code_is_called_equal(load: Load) -> None:
    edits, equal, unknown = list(shop_code.changing_edits()), [], []

    for edit in edits:
        try:
            assets = load(edited(edit))
        except Exception:  # Some changes make code that does not load; they are no edits.
            continue
        found = codes_of(assets)
        if {name: code.digest for name, code in found.items()} == shop_code.DIGESTS:
            equal.append((edit.file, edit.name))
        if any(code.unknown for code in found.values()):
            unknown.append((edit.file, edit.name, {why for code in found.values() for why in code.unknown}))

    assert equal == []
    assert len(edits) >= 180
    assert len(unknown) <= 0.05 * len(edits), unknown


def code_of(load: Load, text: str, name: str = "asset", **files: str) -> Code:
    """The code of a function of a module, with further modules beside it."""
    others = {f"shop/{file}.py": content for file, content in files.items()}
    return CodeReader().code_of(getattr(load({"shop/__init__.py": "", "shop/assets.py": text, **others}), name))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("def asset():\n    return open('x.csv').read()", "open reads a file in asset in shop/assets.py"),
        ("import json\n\ndef asset(path):\n    return path.read_text()", "read_text reads a file"),
        ("def asset(spark):\n    return spark.read.csv('x')", "read.csv reads a file"),
        ("from csv import reader as open_text\nimport gzip\n\ndef asset():\n    return gzip.open('x')", "open reads a file"),
        ("def asset():\n    return eval('1')", "eval finds code or names at run time"),
        ("def asset(name):\n    return globals()[name]", "globals finds code or names"),
        ("import importlib\n\ndef asset():\n    return importlib.import_module('x')", "import_module finds code or names"),
        ("from shop import helpers\n\ndef asset(name):\n    return getattr(helpers, name)", "the module shop.helpers is used as a"),
        ("def asset():\n    return nothing()", "the name nothing has no value"),
        ("def asset():\n    from shop import later\n    return later.x", "shop has no name later when it is loaded"),
        ("def asset():\n    import shop.later as later\n    return later.x()", "shop.later is not imported when the module is loaded"),
        ("import threading\nLOCK = [threading.Lock()]\n\ndef made(lock):\n    def asset():\n        return lock\n    return asset\n\nasset = made(LOCK)", "a value is a _thread.lock"),
        ("exec('def asset():\\n    return 1')", "a function has no source"),
    ],
    ids=str,
)  # fmt: skip
def test_code_that_cannot_be_followed_is_unknown_and_says_why(load: Load, text: str, why: str) -> None:
    code = code_of(load, text, helpers="def help():\n    return 1\n", later="x = 1\n")

    assert code.digest is None
    assert why in " ".join(code.unknown)


@pytest.mark.parametrize(
    "text",
    [
        "import re\n\ndef asset(text):\n    return re.compile('x').sub('', text)",
        "from __future__ import annotations\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from decimal import Decimal\n\n"
        "def asset(x: Decimal) -> Decimal:\n    return x",
        "def asset(n):\n    return asset(n - 1) if n else 0",
        "class A:\n    def go(self):\n        return B()\n\nclass B(A):\n    def go(self):\n        return super().go()\n\n"
        "def asset():\n    return A().go()",
        "from shop.helpers import *\n\ndef asset():\n    return help()",
        "def asset():\n    import json\n    import shop.helpers as other\n    return json.dumps(other.help())",
        "import shop.helpers\n\ndef asset():\n    return shop.helpers.help()",
        "def first(n):\n    return second(n)\n\ndef second(n):\n    return first(n)\n\nasset = first",
        "from collections import namedtuple\nP = namedtuple('P', 'a b')\n\ndef asset():\n    return P(1, 2)",
        "asset = [lambda x: x, lambda y: y + 1][1]",
    ],
    ids=str,
)
def test_ordinary_code_is_followed(load: Load, text: str) -> None:
    loaded = code_of(
        load,
        "import shop.helpers\n" + text if "helpers" in text and "future" not in text else text,
        helpers="def help():\n    return 1\n",
    )

    assert loaded.unknown == ()
    assert loaded.digest is not None


def test_a_source_that_is_not_the_loaded_code_is_unknown(load: Load, tmp_path: Path) -> None:
    assets = load({"shop/__init__.py": "", "shop/assets.py": "def asset():\n    return 1\n"})
    path = Path(assets.__file__)
    same = CodeReader().code_of(assets.asset)

    path.write_text("# A comment.\n\n\ndef asset():\n    return 1\n")
    assert CodeReader().code_of(assets.asset) == same

    path.write_text("def asset():\n    return 22\n")
    assert CodeReader().code_of(assets.asset).unknown == (
        "the source is not the code that is loaded in asset in shop/assets.py",
    )


MADE = """
def made(rate, suffix):
    label = suffix.upper()

    def asset(value, times=rate):
        return value * times, label

    return asset


asset = made(2, "a")
other = made(3, "a")
third = made(2, "b")
"""


def test_functions_of_a_factory_differ_by_what_they_close_over(load: Load) -> None:
    assets = load({"shop/__init__.py": "", "shop/assets.py": MADE})
    codes = [CodeReader().code_of(getattr(assets, name)) for name in ("asset", "other", "third")]
    renamed = code_of(load, MADE.replace("label", "name"))

    assert not any(code.unknown for code in codes)
    assert len({code.digest for code in codes}) == 3
    assert renamed.digest == codes[0].digest


def test_a_local_that_a_text_names_keeps_its_name(load: Load) -> None:
    """`frame.query("n > @least")` and DuckDB find locals by their names."""
    text = "def asset(frame):\n    least = 2\n    most = 3\n    return frame.query('n > @least')\n"

    assert code_of(load, text).digest != code_of(load, text.replace("least = 2", "other = 2")).digest
    assert code_of(load, text).digest == code_of(load, text.replace("most", "other")).digest


def test_an_installed_project_has_the_digests_of_its_checkout(tmp_path: Path) -> None:
    shop_code.write(PROJECT, tmp_path / "site-packages")

    found = codes_of(shop_code.loaded(tmp_path / "site-packages"))

    shop_code.forget()
    assert {name: code.digest for name, code in found.items()} == shop_code.DIGESTS


def test_the_parts_of_a_code_are_named_by_function_and_file(load: Load) -> None:
    before = CodeReader().code_of(load(PROJECT).orders).parts
    changed = PROJECT | {"shop/rates.py": PROJECT["shop/rates.py"].replace("else -1", "else -2")}
    after = CodeReader().code_of(load(changed).orders).parts

    assert [name for name in before if before[name] != after.get(name)] == ["rate_of in shop/rates.py"]
    assert list(before) == list(after)


def test_a_function_that_is_put_in_the_place_of_another_counts(load: Load) -> None:
    assets = load({"shop/__init__.py": "", "shop/helpers.py": "def help():\n    return 1\n",
                   "shop/assets.py": "from shop.helpers import help\n\ndef asset():\n    return help()\n"})  # fmt: skip
    before = CodeReader().code_of(assets.asset)
    assets.help = lambda: 2

    assert CodeReader().code_of(assets.asset).digest != before.digest


def test_the_day_of_a_load_is_no_part_of_the_code(load: Load) -> None:
    text = "import time\nBEGUN = time.time_ns()\n\ndef asset():\n    return BEGUN\n"

    assert code_of(load, text).digest == code_of(load, text).digest is not None


def test_300_assets_take_half_a_second(load: Load) -> None:
    """Measured in processor time: 0.2 s."""
    helper = "def help_{0}(x):\n    total = [x + {0} for x in range(x)]\n    return {{'a': total, 'b': sum(total)}}\n"
    asset = (
        "def asset_{0}(raw, limit={0}):\n    kept = [row for row in raw if row['n'] > limit]\n    for row in kept:\n"
        "        row['x'] = help_{1}(row['n']) if row['n'] % 2 else help_{2}(3)\n    return sorted(kept, key=lambda row: row['x'])\n"
    )
    helpers = "\n".join(helper.format(n) for n in range(50))
    text = "from shop.helpers import *\n" + "\n".join(asset.format(n, n % 50, (n + 7) % 50) for n in range(300))
    assets = load({"shop/__init__.py": "", "shop/assets.py": text, "shop/helpers.py": helpers})

    began = time.process_time()
    reader = CodeReader()
    codes = [reader.code_of(getattr(assets, f"asset_{n}")) for n in range(300)]
    seconds = time.process_time() - began

    assert not any(code.unknown for code in codes)
    assert seconds < 0.5
