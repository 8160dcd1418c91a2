"""`build` in the kernel of a notebook: the page that shows it, and an interrupt."""

import asyncio
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from tests.support.child_environment import child_environment
from tests.support.project import DEFINITIONS, MAX_SECONDS, wait_until

pytestmark = pytest.mark.long("a kernel is a process")

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "notebooks.md"


def notebook(cells: list[str], folder: Path) -> NotebookClient:
    """A notebook in an empty project."""
    (folder / "pyproject.toml").touch()
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    return NotebookClient(made, timeout=MAX_SECONDS, resources={"metadata": {"path": str(folder)}})


def shown(cell: nbformat.NotebookNode, kind: str) -> list[str]:
    """What a cell shows, as text/plain or text/html."""
    return [output["data"][kind] for output in cell.outputs if kind in output.get("data", {})]


def test_the_cells_of_the_page_run_in_a_kernel(tmp_path: Path) -> None:
    client = notebook(re.findall(r"```py(?:thon)?\n(.*?)```", PAGE.read_text(), re.DOTALL), tmp_path)

    client.execute(env=child_environment() | {"DAGSTER_HOME": ""})

    _, building, rebuilding = client.nb.cells
    progress, result = shown(building, "text/html")
    assert "3 of 3 refs live" in progress
    assert result.startswith("<p>3 of 3 refs live in ")
    assert [output for output in rebuilding.outputs if output.output_type == "stream"] == []


HELD = [
    DEFINITIONS.replace("Path(__file__).parent", "Path.cwd()").replace(
        "build_definitions([", "build_definitions(location='shop', assets=["
    ),
    "from databuild_dagster import build",
    "build('orders@2024-01-30', definitions=defs)",
    "import signal; assert signal.getsignal(signal.SIGINT) is signal.default_int_handler",
    "build('orders@2024-01-30', definitions=defs)",
]


def test_an_interrupt_of_the_kernel_ends_the_build_and_the_next_one_works(tmp_path: Path) -> None:
    (tmp_path / "hold-2024-01-30").touch()
    client = notebook(HELD, tmp_path)

    async def run() -> None:
        async with client.async_setup_kernel(env=child_environment() | {"DAGSTER_HOME": ""}):
            cells = list(enumerate(client.nb.cells))
            for number, cell in cells[:2]:
                await client.async_execute_cell(cell, number)
            building = asyncio.create_task(client.async_execute_cell(cells[2][1], 2))
            await asyncio.to_thread(wait_until, (tmp_path / "held-2024-01-30").exists, "the build began")
            await client.km.interrupt_kernel()
            (tmp_path / "hold-2024-01-30").unlink()
            with pytest.raises(CellExecutionError) as raised:
                await building
            assert raised.value.ename == "BuildInterrupted"
            for number, cell in cells[3:]:
                await client.async_execute_cell(cell, number)

    asyncio.run(run())

    assert shown(client.nb.cells[4], "text/plain")[-1].startswith("1 of 1 ref live in ")
