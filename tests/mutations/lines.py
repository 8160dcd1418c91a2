"""Changes the package's functions line by line, and records every test that notices.

    python -m tests.mutations.lines --sources cli web calls --tests tests/cli tests/web tests/calls --report FILE

`guards.py` names the lines whose loss is known to be expensive. This program knows no rule: it shows which tests of a
folder prove nothing alone, and which lines no test looks at. A forked process tries each change, on the tests that
run the line (coverage.py's contexts). It replaces the code of the function where it is, so nothing is imported again.
Tests marked `long` are left out, since another process would not have the change.
"""

from __future__ import annotations

import argparse
import ast
import copy
import gc
import importlib
import json
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType

import pytest
from _pytest.runner import runtestprotocol

from .mutant import PACKAGE, ROOT

#: A line that more tests run than this is tried on those that run the fewest lines.
MOST_TESTS = 24
#: A change may make a loop endless.
PATIENCE_SECONDS = 60
#: A change that so many tests notice is tried no further.
ENOUGH_FAILED = 3
PROCESSES = 2
#: What a fork writes last.
ENDED = "ended"
ARGUMENTS = ("-q", "-p", "no:randomly", "-p", "no:cacheprovider", "-s")

SWAPPED: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}


@dataclass(frozen=True)
class Change:
    """One changed place of a file."""

    file: str
    line: int
    #: What was done, such as `removed`.
    kind: str
    #: Qualified name and first line of the function that contains the place, and its code with the change.
    function: tuple[str, int]
    code: CodeType = field(repr=False)

    @property
    def name(self) -> str:
        return f"{self.file}:{self.line} {self.kind}"


def changes_of(file: str) -> list[Change]:
    """All changes of the functions of a file, in the order of its lines."""
    tree = ast.parse((ROOT / PACKAGE / file).read_text())
    found = []
    for function in _functions(tree):
        for node, kind in _places(function):
            old = copy.copy(node.__dict__)
            replacement = _change(node, kind)
            if replacement is not None:
                # A node is changed where it is, compiled and put back: a copy of the tree for each would take minutes.
                kept = node.__class__
                node.__class__, node.__dict__ = replacement.__class__, ast.copy_location(replacement, node).__dict__
                ast.fix_missing_locations(node)
                code = compile(tree, str(ROOT / PACKAGE / file), "exec")
                node.__class__, node.__dict__ = kept, old
                inner = _code_at(code, function)
                if inner is not None:
                    line = old["lineno"]
                    found.append(Change(file, line, kind, (inner.co_qualname, inner.co_firstlineno), inner))
    return found


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Outermost functions and methods: the code of a nested function is a constant of theirs."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node
        elif isinstance(node, (ast.ClassDef, ast.If, ast.Try)):
            yield from _functions(node)


def _places(function: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """What can be changed in a function's body; the text of an error is not, since it is compared where it is made."""
    for statement in function.body:  # type: ignore[attr-defined]
        yield from _in(statement)


def _in(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    if isinstance(node, ast.Raise):
        yield node, "removed"
        return
    if isinstance(node, (ast.JoinedStr, ast.Assert)):
        return
    if isinstance(node, ast.Expr):
        if isinstance(node.value, ast.Constant):
            return
        yield node, "removed"
    if isinstance(node, (ast.If, ast.While, ast.IfExp)):
        yield node.test, "negated"
    if isinstance(node, ast.comprehension):
        for condition in node.ifs:
            yield condition, "negated"
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield node, "swapped"
    if isinstance(node, ast.BoolOp):
        yield node, "and/or"
    if isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
        yield node, "returns None"
    if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int)):
        yield node, "other constant"
    if isinstance(node, ast.Dict):
        for key in node.keys:
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key, "other key"
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.arguments):
            yield from _in(child)


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _change(node: ast.AST, kind: str) -> ast.AST | None:
    match kind:
        case "removed":
            return ast.Pass()
        case "negated":
            inner = copy.copy(node)
            return None if isinstance(node, ast.Compare) else ast.UnaryOp(ast.Not(), inner)
        case "swapped":
            assert isinstance(node, ast.Compare)
            return ast.Compare(node.left, [SWAPPED[type(node.ops[0])]()], node.comparators)
        case "and/or":
            assert isinstance(node, ast.BoolOp)
            return ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
        case "returns None":
            return ast.Return(ast.Constant(None))
        case "other constant":
            assert isinstance(node, ast.Constant)
            value = node.value
            return ast.Constant(not value if isinstance(value, bool) else value + 1)
        case "other key":
            assert isinstance(node, ast.Constant)
            return ast.Constant(f"{node.value}_")
    raise AssertionError(kind)


def _code_at(code: CodeType, function: ast.FunctionDef | ast.AsyncFunctionDef) -> CodeType | None:
    first = min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_name == function.name and constant.co_firstlineno == first:
                return constant
            if (found := _code_at(constant, function)) is not None:
                return found
    return None


# Which tests run which lines.


class Contexts:
    """A plugin of pytest that records the lines of each test, its seconds, and whether it passes."""

    def __init__(self, sources: Sequence[str], file: Path) -> None:
        from coverage import Coverage

        self.coverage = Coverage(
            data_file=None,
            include=[str(ROOT / PACKAGE / source) + ("" if source.endswith(".py") else "/*") for source in sources],
            config_file=False,
        )
        self.file = file
        self.tests: dict[str, float] = {}
        self.failed: set[str] = set()
        self.coverage.start()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.coverage.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.tests[report.nodeid] = self.tests.get(report.nodeid, 0.0) + report.duration
        if not report.passed:
            self.failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        self.coverage.stop()
        data = self.coverage.get_data()
        lines = {}
        for file in data.measured_files():
            by_line = data.contexts_by_lineno(file)
            name = Path(file).relative_to(ROOT / PACKAGE).as_posix()
            lines[name] = {
                str(line): [test for test in tests if test in self.tests and test not in self.failed]
                for line, tests in by_line.items()
            }
        self.file.write_text(json.dumps({"seconds": self.tests, "failed": sorted(self.failed), "lines": lines}))


@dataclass(frozen=True)
class Coverings:
    """The tests that run each line."""

    seconds: dict[str, float]
    failed: list[str]
    #: File, line (as text, for JSON), tests.
    lines: dict[str, dict[str, list[str]]]

    def n_lines(self) -> Counter[str]:
        return Counter(test for lines in self.lines.values() for tests in lines.values() for test in tests)


def cover(sources: Sequence[str], tests: Sequence[str]) -> Coverings:
    """Run the tests once, in a process of their own."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "contexts.json"
        command = [
            sys.executable,
            "-m",
            __spec__.name,
            "--contexts",
            str(file),
            "--sources",
            *sources,
            "--tests",
            *tests,
        ]
        subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.DEVNULL)
        return Coverings(**json.loads(file.read_text()))


# The changes, each in a fork.


class Trials:
    """A plugin of pytest that tries changes in place of running the tests once."""

    def __init__(self, changes: Sequence[Change], coverings: Coverings, report: Path) -> None:
        self.changes = changes
        self.coverings = coverings
        self.report = report

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        # A command imports its module when it is called, and that would be in the fork.
        for file in {change.file for change in self.changes}:
            importlib.import_module(f"{PACKAGE}.{file.removesuffix('.py').replace('/', '.').removesuffix('.__init__')}")
        gc.unfreeze()
        items = {item.nodeid: item for item in session.items}
        functions: dict[tuple[str, str, int], list[FunctionType]] = defaultdict(list)
        for found in gc.get_objects():
            if isinstance(found, FunctionType) and PACKAGE in found.__code__.co_filename:
                code = found.__code__
                functions[code.co_filename, code.co_qualname, code.co_firstlineno].append(found)
        n_lines = self.coverings.n_lines()
        gc.freeze()
        running: dict[int, tuple[int, Change, list[str], float]] = {}
        with self.report.open("a") as out:
            for place, change in enumerate(self.changes):
                tests = self.coverings.lines.get(change.file, {}).get(str(change.line), [])
                chosen = sorted((test for test in set(tests) if test in items), key=lambda test: (n_lines[test], test))
                if not chosen:
                    _tell(out, change, [], [])
                else:
                    while len(running) == PROCESSES:
                        self._collect(running, out)
                    targets = functions[str(ROOT / PACKAGE / change.file), *change.function]
                    some = [items[test] for test in chosen[:MOST_TESTS]]
                    reading, pid = _fork(targets, change.code, some)
                    running[reading] = (pid, change, [item.nodeid for item in some], time.monotonic())
                if place % 100 == 99:
                    print(f"{place + 1} of {len(self.changes)}", file=sys.stderr, flush=True)
            while running:
                self._collect(running, out)
        return True

    def _collect(self, running: dict[int, tuple[int, Change, list[str], float]], out) -> None:
        ready, _, _ = select.select(list(running), [], [], 1.0)
        for reading, (pid, change, tests, began) in list(running.items()):
            limit = PATIENCE_SECONDS + 5 * sum(self.coverings.seconds[test] for test in tests)
            if reading in ready or time.monotonic() - began > limit:
                if reading not in ready:
                    os.killpg(pid, signal.SIGKILL)
                with os.fdopen(reading) as pipe:
                    lines = pipe.read().splitlines()
                os.waitpid(pid, 0)
                del running[reading]
                failed = [line.removeprefix("- ") for line in lines if line.startswith("- ")]
                if ENDED not in lines:
                    done = {line[2:] for line in lines}
                    # The test that was running when the process ended or was ended has noticed.
                    failed += [test for test in tests if test not in done][:1]
                _tell(out, change, tests, failed)


def _tell(out, change: Change, tests: list[str], failed: list[str]) -> None:
    line = {"change": change.name, "tests": tests, "failed": failed}
    print(json.dumps(line), file=out, flush=True)


def _fork(targets: list[FunctionType], code: CodeType, items: list[pytest.Item]) -> tuple[int, int]:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return reading, pid
    try:
        os.setpgid(0, 0)
        os.close(reading)
        quiet = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(quiet, stream)
        for function in targets:
            if len(function.__code__.co_freevars) == len(code.co_freevars):
                function.__code__ = code
        n_failed = 0
        for item, following in zip(items, [*items[1:], None], strict=True):
            failed = any(report.failed for report in runtestprotocol(item, nextitem=following, log=False))
            os.write(writing, f"{'-' if failed else '+'} {item.nodeid}\n".encode())
            n_failed += failed
            if n_failed == ENOUGH_FAILED:
                break
        os.write(writing, f"{ENDED}\n".encode())
    finally:
        os._exit(0)


def summarize(report: Path, seconds: Mapping[str, float]) -> None:
    """Print the lines that no test looks at, and the tests that the others make superfluous."""
    rows = [json.loads(line) for line in report.read_text().splitlines()]
    unseen = [row for row in rows if not row["tests"]]
    survived = [row for row in rows if row["tests"] and not row["failed"]]
    found = [set(row["failed"]) for row in rows if row["failed"]]
    alone = Counter(next(iter(tests)) for tests in found if len(tests) == 1)
    needed = set(alone)
    left = [tests for tests in found if needed.isdisjoint(tests)]
    while left:
        counts = Counter(test for tests in left for test in tests)
        best = max(counts, key=lambda test: (counts[test], -seconds.get(test, 0.0), test))
        needed.add(best)
        left = [tests for tests in left if best not in tests]
    for row in survived:
        print(f"survived: {row['change']}")
    for row in unseen:
        print(f"not run: {row['change']}")
    for test in sorted(set(seconds) - needed):
        n_found = sum(test in tests for tests in found)
        print(f"not needed: {test} ({n_found} changes found, none alone)")
    print(
        f"{len(rows)} changes: {len(found)} found, {len(survived)} survived, {len(unseen)} in lines that no test runs; "
        f"{len(needed)} of {len(seconds)} tests are needed."
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", nargs="+", required=True, help="files and folders below the package")
    parser.add_argument("--tests", nargs="+", required=True, help="files and folders of tests")
    parser.add_argument("--most", type=int, default=0, help="so many changes, by lot (default: all)")
    parser.add_argument("--report", type=Path, help="a file that gets a line of JSON for each change")
    parser.add_argument("--contexts", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    arguments = [*ARGUMENTS, "-m", "not long and not browser", *given.tests]
    if given.contexts:
        plugin = Contexts(given.sources, given.contexts)
        return int(pytest.main([*arguments, "--timeout=120"], plugins=[plugin]))
    files = sorted(
        path.relative_to(ROOT / PACKAGE).as_posix()
        for source in given.sources
        for path in ([ROOT / PACKAGE / source] if source.endswith(".py") else (ROOT / PACKAGE / source).rglob("*.py"))
    )
    changes = [change for file in files for change in changes_of(file)]
    if given.most:
        changes = sorted(
            random.Random(1).sample(changes, min(given.most, len(changes))), key=lambda change: change.name
        )
    coverings = cover(given.sources, given.tests)
    print(f"{len(changes)} changes, {len(coverings.seconds)} tests, {len(coverings.failed)} of them do not pass")
    for test in coverings.failed:
        print(f"does not pass: {test}")
    pytest.main([*arguments, "--timeout=60"], plugins=[Trials(changes, coverings, given.report)])
    summarize(given.report, coverings.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
