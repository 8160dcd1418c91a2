"""Rule 4.7: the digest of a function's code is equal for the same code, and for no other."""

from __future__ import annotations

import linecache
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

    differing = []
    for edit in edits:
        found = codes_of(load(edited(edit)))
        if {name: code.digest for name, code in found.items()} != shop_code.DIGESTS:
            differing.append(
                (edit.file, edit.name, {name: code.unknown or code.digest for name, code in found.items()})
            )

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
        "def asset():\n    from shop import helpers\n    return helpers.help()",
        "import functools, logging\n\ndef logged(f):\n    log = logging.getLogger('x')\n    @functools.wraps(f)\n    def inner(x):\n        log.info(x)\n"
        "        return f(x)\n    return inner\n\n@logged\ndef asset(x):\n    return x",
        "import threading\nLOCKS = [threading.Lock()]\n\ndef asset():\n    LOCKS2 = [*LOCKS]\n    LOCKS2.append(1)\n    return LOCKS2",
        "from typing import NamedTuple\n\nclass P(NamedTuple):\n    a: int\n    b: str = 'x'\n\nX = P(1)\n\ndef asset():\n    return X",
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


SCALED = """
import functools
from functools import partial

def scaled(function, factor):
    @functools.wraps(function)
    def inner(x):
        return function(x) * factor
    return inner

def raw(x):
    return x

"""
#: A change in another place than the function, which decides what the function returns.
CHANGES = [
    ("wrapper of a call", SCALED + "clean = scaled(raw, 2)\n\ndef asset():\n    return clean(1)", "raw, 2", "raw, 3"),
    ("wrapper in a dict", SCALED + "S = {'a': scaled(raw, 2)}\n\ndef asset():\n    return S['a'](1)", "raw, 2", "raw, 3"),
    ("wrapped asset", SCALED + "asset = scaled(raw, 2)", "raw, 2", "raw, 3"),
    ("wrapper in a closure", SCALED + "def made(k):\n    clean = scaled(raw, k)\n    def asset():\n        return clean(1)\n    return asset\n\nasset = made(2)",
     "made(2)", "made(3)"),
    ("wrapper in an object", SCALED + "class C:\n    def __init__(self, run):\n        self.run = run\n\nX = C(scaled(raw, 2))\n\ndef asset():\n    return X.run(1)",
     "raw, 2", "raw, 3"),
    ("wrapper as a method", SCALED + "class C: pass\n\nC.run = scaled(raw, 2)\n\ndef asset():\n    return C().run(1)", "raw, 2", "raw, 3"),
    ("wrapper of a library", SCALED + "clean = partial(functools.lru_cache(maxsize=2)(raw), 2)\n\ndef asset():\n    return clean()", "=2", "=3"),
    ("wrapper of a native library", SCALED + "import contextlib\nclean = [contextlib.contextmanager(raw), 2]\n\ndef asset():\n    return clean", ", 2]", ", 3]"),
    ("defaults of a loop", "FS = []\nfor r in (1, 2):\n    FS.append(lambda x, r=r: x * r)\n\ndef asset():\n    return FS[0](1)", "(1, 2)", "(5, 2)"),
    ("defaults of a comprehension", "FS = [lambda x, r=r: x * r for r in (1, 2)]\n\ndef asset():\n    return FS[0](1)", "(1, 2)", "(5, 2)"),
    ("default of a name with a new value", "R = 2\ndef h(x, r=R):\n    return x * r\nR = 3\n\ndef asset():\n    return h(1)", "R = 2", "R = 5"),
    ("defaults that are put in", "def h(*, k=1):\n    return k\nh.__kwdefaults__ = {'k': 2}\n\ndef asset():\n    return h()", "'k': 2", "'k': 3"),
    ("first of two imports", "import shop.helpers, shop.later\n\ndef asset():\n    try:\n        from shop.helpers import help\n    except ImportError:\n"
     "        from shop.later import help\n    return help()", "return 1", "return 2"),
    ("member that is a list", "class C:\n    X = []\n\nC.X.append('a')\n\ndef asset():\n    return C.X", "'a'", "'b'"),
    ("member that is put in", "import functools\nclass C: pass\n\nC.r = functools.partial(max, 2)\n\ndef asset():\n    return C.r(1)", "max, 2", "max, 3"),
    ("member of a name with a new value", "R = 2\nclass C:\n    X = [R]\nR = 3\n\ndef asset():\n    return C.X", "R = 2", "R = 5"),
    ("registry of a class", "class B:\n    reg = {}\n    def __init_subclass__(cls):\n        B.reg['C'] = cls\n\nclass C(B):\n    def run(self):\n        return 1\n\n"
     "def asset():\n    return B.reg['C']().run()", "return 1", "return 2"),
    *((f"registry in {kind}", f"import collections, types\nR = {kind}\ndef reg(f):\n    {add}\n    return f\n\n@reg\ndef one(x):\n    return x + 1\n\n"
       "def asset():\n    return R", "x + 1", "x + 2")
      for kind, add in (("collections.defaultdict(list)", "R['a'].append(f)"), ("collections.OrderedDict()", "R['a'] = f"), ("collections.deque()", "R.append(f)"),
                        ("types.SimpleNamespace()", "R.a = f"))),
    ("counter", "import collections\nR = collections.Counter()\ndef add(k, n):\n    R[k] = n\nadd('a', 1)\n\ndef asset():\n    return R", "'a', 1", "'a', 2"),
    ("object with a lock", "import threading\nclass C:\n    def __init__(self):\n        self.lock = threading.Lock()\n        self.x = {}\n\n"
     "def fill(c):\n    c.x['a'] = 1\n\nX = C()\nfill(X)\n\ndef asset():\n    return X.x", "= 1", "= 2"),
    ("list that a comprehension fills", "import threading\nX = []\n_ = [X.append((threading.Lock(), n)) for n in ['a']]\n\ndef asset():\n    return X", "['a']", "['b']"),
    ("singledispatch", "import functools\n@functools.singledispatch\ndef show(x):\n    return x\n\n@show.register\ndef _(x: int):\n    return x + 1\n\n"
     "def asset():\n    return show(1)", "x + 1", "x + 2"),
    ("base of the first of two classes", "import sys\nclass A:\n    def r(self):\n        return 1\n\nclass B:\n    def r(self):\n        return 2\n\nif sys.maxsize:\n"
     "    class C(A): pass\nelse:\n    class C(B): pass\n\ndef asset():\n    return C().r()", "return 1", "return 9"),
    ("make_dataclass", "from dataclasses import field, make_dataclass\nD = {'c': make_dataclass('C', [('a', int, field(default=1))])}\n\ndef asset():\n    return D['c']().a",
     "=1)", "=2)"),
    ("attribute of a function", "def h(x):\n    return x * h.rate\n\nh.rate = 2\n\ndef asset():\n    return h(1)", "rate = 2", "rate = 3"),
    ("locals in the text of a global", "Q = 'n > @least'\n\ndef asset(frame):\n    least = 3\n    most = 9\n    return frame.query(Q)", "least = 3\n    most = 9",
     "most = 3\n    least = 9"),
    ("slot with two underscores", "class M:\n    __slots__ = ('__r',)\n    def __init__(self, r):\n        self.__r = r\n\nX = M(1)\n\ndef asset():\n    return X", "M(1)", "M(2)"),
    ("set of a project's class", "class S(set): pass\n\nX = S(['a'])\n\ndef asset():\n    return X", "'a'", "'b'"),
    ("long text", "X = 'a' * 5000 + 'b'\n\ndef asset():\n    return X", "'b'", "'c'"),
]  # fmt: skip
HELPERS = {"shop/helpers.py": "def help():\n    return 1\n", "shop/later.py": "def help():\n    return 3\n"}


@pytest.mark.parametrize(("text", "old", "new"), [row[1:] for row in CHANGES], ids=[row[0] for row in CHANGES])
def test_a_change_elsewhere_that_the_function_sees_gives_another_digest(
    load: Load, text: str, old: str, new: str
) -> None:
    project = {"shop/__init__.py": "", "shop/assets.py": text, **HELPERS}
    changed = {file: content.replace(old, new) for file, content in project.items()}
    assert changed != project

    before, after = (CodeReader().code_of(load(one).asset) for one in (project, changed))

    assert before.unknown == after.unknown == ()
    assert before.digest != after.digest


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("from decimal import Decimal\nclass M(Decimal): pass\n\nX = {'a': M(1)}\n\ndef made(x):\n    def asset():\n        return x\n    return asset\n\nasset = made(X)",
         "a value of M has a state in native code"),
        ("import threading\nX = []\ndef add():\n    X.append(threading.Lock())\nadd()\n\ndef asset():\n    return X", "its value is changed by other code in X in"),
        ("import threading\nX = None\ndef init():\n    global X\n    X = threading.Lock()\ninit()\n\ndef asset():\n    return X", "its value is changed by other code"),
        ("import threading\nX = [threading.Lock()]\nY = X\nY.append(1)\n\ndef asset():\n    return X", "its value is changed by other code in X in"),
        ("class C:\n    import shop.helpers as q\n    def r(self):\n        return self.q.help()\n\ndef asset():\n    return C().r()", "the module shop.helpers is used as a"),
        ("if len('a'):\n    class C:\n        X = 1\nelse:\n    class C:\n        X = 2\n\ndef asset():\n    return C.X", "the module has several classes C"),
        ("def asset():\n    return 1\nasset.__wrapped__ = asset", "it cannot be read (ValueError)"),
        ("def asset():\n    return 1\nasset.__module__ = 7", "it cannot be read (AttributeError)"),
        ("class E:\n    def __getattr__(self, name):\n        raise SystemExit(3)\n\nX = E()\n\ndef asset(x=X):\n    return x\nasset.__wrapped__ = X", "it cannot be read (SystemExit)"),
        ("def asset(x):\n    return x" + ".a()" * 900, "it cannot be read (RecursionError"),
    ],
    ids=["native state", "filled", "rebound", "alias", "class import", "two classes", "wraps itself", "module", "exit", "deep"],
)  # fmt: skip
def test_code_that_may_be_changed_unseen_or_raises_is_unknown(load: Load, text: str, why: str) -> None:
    project = {"shop/__init__.py": "", "shop/assets.py": "import shop.helpers\n" + text, **HELPERS}

    code = CodeReader().code_of(load(project).asset)

    assert code.digest is None
    assert why in " ".join(code.unknown)


@pytest.mark.parametrize(
    "expression",
    ["list({'a', 'b'})", "','.join({'a', 'b'})", "{k: 1 for k in set('ab')}", "hash('a')", "id([])", "repr(object())", "random.sample(range(9), 3)"],
)  # fmt: skip
def test_a_value_that_differs_between_processes_counts_by_its_expression(load: Load, expression: str) -> None:
    assets = load(
        {"shop/__init__.py": "", "shop/assets.py": f"import random\nX = {expression}\n\ndef asset():\n    return X\n"}
    )
    before = CodeReader().code_of(assets.asset)

    assets.X = ["of another process at 0x7f0000000000"]

    assert CodeReader().code_of(assets.asset) == before
    assert before.digest is not None


def test_a_cell_of_a_notebook_has_a_digest(tmp_path: Path) -> None:
    path, text = str(tmp_path / "ipykernel_1" / "2.py"), "def asset():\n    return 1\n"
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text, path, "exec", dont_inherit=True), names)

    code = CodeReader().code_of(names["asset"])

    assert (code.digest is not None, code.unknown) == (True, ())


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


def test_300_assets_beside_300_modules_take_seconds(load: Load) -> None:
    """Measured in processor time: 0.6 s."""
    helper = "def help_{0}(x):\n    total = [x + {0} for x in range(x)]\n    return {{'a': total, 'b': sum(total)}}\n"
    asset = (
        "def asset_{0}(raw, limit={0}):\n    kept = [row for row in raw if row['n'] > limit]\n    for row in kept:\n"
        "        row['x'] = KEPT_{0}, help_{1}(row['n']) if row['n'] % 2 else help_{2}(3)\n    return sorted(kept, key=lambda row: row['x'])\n"
    )
    helpers = "\n".join(helper.format(n) for n in range(50))
    text = "from shop.helpers import *\nfrom shop import " + ", ".join(f"part_{n}" for n in range(300)) + "\n"
    text += "\n".join(f"KEPT_{n} = [part_{n}.NAME]" for n in range(300)) + "\n"
    text += "\n".join(asset.format(n, n % 50, (n + 7) % 50) for n in range(300))
    others = {f"shop/part_{n}.py": f"NAME = '{n}'\nNAMES = []\nNAMES.append(NAME)\n" for n in range(300)}
    assets = load({"shop/__init__.py": "", "shop/assets.py": text, "shop/helpers.py": helpers, **others})

    began = time.process_time()
    reader = CodeReader()
    codes = [reader.code_of(getattr(assets, f"asset_{n}")) for n in range(300)]
    seconds = time.process_time() - began

    assert not any(code.unknown for code in codes)
    assert seconds < 10
