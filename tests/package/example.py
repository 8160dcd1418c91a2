"""The second example as a project of a user: copied out of the checkout, installed beside the wheels, run by its README.

Each command of a `console` block runs in the order of the page, and has to print the lines below it. Then `figures.py`
compares the tables with pandas on the same data.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.matrix.environments import CHECKOUT
from tests.package.steps import Failed, pip, run, step

EXAMPLE = CHECKOUT / "examples" / "penguins"
FIGURES = Path(__file__).with_name("figures.py")
#: What running the example leaves in its folder; names with a dot are left out, too.
LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "landing", "pages")

#: Prints where the package and the project come from.
WHERE = "import databuild_dagster, penguins; print(databuild_dagster.__file__, penguins.__file__)"


class Command(NamedTuple):
    """A command of the README, and the output that the page shows."""

    heading: str
    text: str
    output: str


def use_example(folder: Path, python: Path) -> None:
    """Raises `Failed`."""
    project = folder / "penguins"
    with step("pip install the second example"):
        shutil.copytree(EXAMPLE, project, ignore=LEFT_OUT)
        pip(python, "install", "--find-links", str(folder / "index"), str(project))
        found = run(str(python), "-c", WHERE, cwd=folder)
        if found.count(str(python.parents[1])) != 2:
            raise Failed(f"not both are from the environment: {found}")
    try:
        commands = list(commands_in((project / "README.md").read_text(encoding="utf-8")))
        for heading in dict.fromkeys(command.heading for command in commands):
            with step(f"README of the example: {heading}"):
                for command in commands:
                    if command.heading == heading:
                        follow(command, project, python)
        with step("the tables of the example have the figures of pandas"):
            run(str(python), str(FIGURES), cwd=project)
    finally:
        run(str(python.with_name("databuild")), "spark", "--stop", cwd=project)


def commands_in(page: str) -> Iterator[Command]:
    """The commands of the `console` blocks, in the order of the page."""
    for section in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        heading = section.partition("\n")[0]
        for block in re.findall(r"```console\n(.*?)```", section, re.DOTALL):
            for text, output in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
                yield Command(heading, text, output)


def follow(command: Command, project: Path, python: Path) -> None:
    """Run a command as a shell does. Raises `Failed` if it fails, or prints other lines."""
    path = {"PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
    printed = run("bash", "-o", "pipefail", "-c", command.text, cwd=project, more=path)
    lines = "\n".join(line.rstrip() for line in printed.splitlines())
    if command.output.rstrip() not in lines:
        raise Failed(f"`{command.text}` did not print\n{command.output}but\n{lines}")
