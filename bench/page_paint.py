"""The first paint of the example's pages in Chromium, from a web server of its own."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

from bench.page_streams import web_server
from tests.support.chromium import running_chromium

ROOT = Path(__file__).parent.parent
MONTH = "carrier_monthly@2013-01-01"
PATHS = (
    "/",
    "/assets",
    "/calendar?dataset=flights",
    f"/partition?ref={quote(MONTH)}",
    "/wants?ended=1",
    f"/calendar?dataset=carrier_monthly&ref={quote(MONTH)}",
)
#: Milliseconds from the beginning of the navigation, as soon as something is painted.
PAINTED = """() => new Promise(resolve => new PerformanceObserver(list => {
    const painted = list.getEntries().find(entry => entry.name === "first-contentful-paint");
    if (painted) resolve(painted.startTime);
}).observe({type: "paint", buffered: true}))"""
LIMIT = 1_000


def print_paints(home: Path, rounds: int) -> None:
    """A line for each page of the example, of which January is built."""
    shutil.copy(ROOT / "dagster.yaml", home)
    environment = os.environ | {"DAGSTER_HOME": str(home)}
    _databuild(environment, "build", MONTH)
    try:
        with web_server(home, "-w", str(ROOT / "workspace.yaml")) as port, running_chromium() as browser:
            print("| page | first paint, ms | the slowest | limit |\n|---|---|---|---|")
            for path in PATHS:
                painted = []
                for _ in range(rounds):
                    # A page of its own each time: without the files that the last one has kept.
                    context = browser.new_context(viewport={"width": 1400, "height": 900})
                    page = context.new_page()
                    page.goto(f"http://127.0.0.1:{port}/databuild{path}")
                    painted.append(float(page.evaluate(PAINTED)))
                    context.close()
                late = " NO" if max(painted) > LIMIT else ""
                print(
                    f"| `{path}` | {statistics.median(painted):.0f} | {max(painted):.0f} | {LIMIT}{late} |", flush=True
                )
    finally:
        _databuild(environment, "spark", "--stop")


def _databuild(environment: dict[str, str], *arguments: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "databuild_dagster", *arguments], cwd=ROOT, env=environment, check=True, timeout=900
    )
