"""Lines that a module imports, directly or not: `python -m tools.reach` measures the doors of the package.

An import inside a function counts; one for type checkers alone does not. The core reaches features by their list alone, at
run time, so the lines behind a door are those that a reader of the door may have to know. `LIMITS` are bounds that
`tests/test_reach.py` keeps.
"""

from __future__ import annotations

import argparse
import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

PACKAGE: Final = "databuild_dagster"
FEATURES: Final = f"{PACKAGE}.features"
#: The packages of the core, lowest first.
CORE: Final = ("model", "store", "engine", "warehouse", "data", "spark", "bindings")
#: Most lines behind a door, and most lines of the core and of the package.
LIMITS: Final[Mapping[str, int]] = {
    # 41,600 until outages became calm, 43,150 until the build loop could be called from Python, 43,410 until a build answered without
    # definitions, chose the number of its launches, stored Dagster's events in batches, and partition keys were computed. 44,680 until
    # code had a digest (decision 0073: 1,500), inputs were computed without Dagster, failures a cause, and mistakes of a first day
    # a sentence. 46,730 until wrappers, members, defaults and changes by other code counted in the digest; so do the three below.
    # 47,230 until rows were sent to Sail compressed and a launch took a third less, and
    # 47,280 until instances could be borrowed (decision 0075: 250) and builds compared their rows with those before (decision 0074: 200);
    # so do the three below. 47,830 until instances were compared by their hashes, and environments with their base (20 in the store), and
    # the base of an environment could be in PostgreSQL (20 in the store).
    # 47,870 until environments followed their base (decision 0076: 240), were promoted (0081: 240) and visible (0078: 80), and an earlier
    # instance came back in place of a build (0077: 330); so do the three below. 48,800 until a take-over read the records of environments,
    # whose prefix queries have 70 lines, and looks at the base read new events alone (60),
    # promotion had the pins of builds and equal rows (40), a home found data beside it, and a take-over named environments (20).
    # 48,990 until each face named what equal rows cut off (60 in the store), definitions named promoters, and events were reverted as a
    # whole (60 in the model), and processes open a new home in turn (40); so do the three below. 49,260 until `--verify` compared second
    # builds with earlier instances (decision 0085: 280, of which 80 in the model and the store are in `cli.read`, too), and a promotion was
    # decided once (20), and rows for Sail were held compressed, and freed memory returned (26).
    "cli.build": 49_600,
    # 26,700 until options followed from the fields of a command, 26,720 until partition keys were computed without Dagster, 27,140 until
    # the same as above.
    "cli.read": 31_260,
    # 47,800 until the build loop moved here from the command line, 48,800 until the records of answers moved here beside their queries,
    # 49,600 until the speed that `cli.build` names, and 50,790 until what it names last,
    # with the instance at the time of equal rows (10 in the store).
    "core": 56_170,
    # 78,000 was the aim; decision 0057 says what is left. Right values, calm failures at the border, calm outages and liveness took
    # the rest; health has 300, `build()` and its sisters in Python 700, speed where people wait 1,600. Of the first hour and the first
    # night mistakes and tests have 420, charts, search, taints and lineage on pages 650, causes and tracebacks 450; the digest of code
    # has 1,550, and the comparison of ranges 620. Authors' numbers on a chart and failures named by their cause have 140,
    # environments 2,800 and their comparison 450, equal rows 300, and earlier instances 550.
    # Snapshots between equal rows have 60, and tables that wait for builds of equal rows 60.
    # Moved, copied and taken over bases of environments and their disks have 170. Ranges and `promoters=` of a promotion and the
    # revert of a whole event have 230. Promotion in the browser has 160, and second builds have 290.
    "package": 96_880,
}
#: Further doors that are measured.
DOORS: Final = ("cli.build", "cli.read", "bindings.building.step", "bindings.authoring.definitions", "engine.tick")


@dataclass(frozen=True)
class Modules:
    """The modules of a package by name, with their files."""

    files: Mapping[str, Path]

    @classmethod
    def of(cls, folder: Path) -> Modules:
        """The modules of the package in a folder."""
        found = {}
        for path in sorted(folder.rglob("*.py")):
            parts = (folder.name, *path.relative_to(folder).with_suffix("").parts)
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
        return cls(found)

    @cached_property
    def lines(self) -> Mapping[str, int]:
        return {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in self.files.items()}

    @cached_property
    def imports(self) -> Mapping[str, frozenset[str]]:
        """The modules of the package that each module imports."""
        return {
            name: frozenset(self._imported(ast.parse(path.read_text(encoding="utf-8"))))
            for name, path in self.files.items()
        }

    def behind(self, door: str) -> set[str]:
        """The modules that are loaded when a module is imported and all of its functions run, the module itself among them."""
        seen: set[str] = set()
        left = [door]
        while left:
            name = left.pop()
            if name in seen or name not in self.files:
                continue
            seen.add(name)
            parts = name.split(".")
            left += [".".join(parts[:n]) for n in range(1, len(parts))]
            left += self.imports[name]
        return seen

    def _imported(self, node: ast.AST) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            match child:
                case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                    for statement in child.orelse:
                        yield from self._imported(statement)
                case ast.Import(names=names):
                    yield from (alias.name for alias in names if alias.name in self.files)
                case ast.ImportFrom(module=str(module), names=names):
                    for alias in names:
                        submodule = f"{module}.{alias.name}"
                        if submodule in self.files:
                            yield submodule
                        elif module in self.files:
                            yield module
                case _:
                    yield from self._imported(child)


def feature_of(module: str) -> str | None:
    """The feature whose folder has the module; None for the core and the faces."""
    parts = module.split(".")
    return parts[2] if module.startswith(f"{FEATURES}.") and len(parts) > 2 else None


def measured(modules: Modules) -> dict[str, int]:
    """The lines of each door, of the core and of the package."""
    found = {door: sum(modules.lines[name] for name in modules.behind(f"{PACKAGE}.{door}")) for door in DOORS}
    found["core"] = sum(n for name, n in modules.lines.items() if name.split(".")[1:2] and name.split(".")[1] in CORE)
    found["package"] = sum(modules.lines.values())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("module", nargs="?", help="list what this module reaches, such as cli.read")
    asked: str | None = parser.parse_args().module
    modules = Modules.of(Path(__file__).parents[1] / PACKAGE)
    if asked is not None:
        for name in sorted(modules.behind(f"{PACKAGE}.{asked}"), key=lambda name: -modules.lines[name]):
            print(f"{modules.lines[name]:6,}  {name}")
        return
    for door, n in measured(modules).items():
        limit = f", at most {LIMITS[door]:,}" if door in LIMITS else ""
        print(f"{n:7,} lines  {door}{limit}")
    by_room = Counter[str]()
    for name, n in modules.lines.items():
        by_room[".".join(name.split(".")[1 : 3 if feature_of(name) else 2]) or PACKAGE] += n
    for room, n in by_room.most_common():
        print(f"{n:7,} lines  in {room}")


if __name__ == "__main__":
    main()
