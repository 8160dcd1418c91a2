"""The pictures of the docs: a real shop of three months, the pages of its real web server, a real browser.

python -m tools.pictures               make the pictures of docs/how-to again
python -m tools.pictures --all FOLDER  every page in light, dark and narrow, to look at them
python -m tools.pictures --serve       leave the shop open, for --port

It takes a few minutes and needs Chromium. `pngquant`, if there is one, makes the pictures a third as large.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from playwright.sync_api import Browser, sync_playwright

from tools.pictures_project import (
    COMMAS,
    COUNTS,
    COUNTS_AGAIN,
    END,
    FIRST,
    HOLD,
    LATE,
    RECOUNTED,
    WRONG,
    definitions,
)
from tools.story import Shop

ROOT: Final = Path(__file__).parent.parent
DOCS: Final = ROOT / "docs" / "how-to"
FOLDER: Final = ROOT / ".pictures"
WIDTH: Final = 1280
MAX_PAGE_SECONDS: Final = 60
#: A page is complete when it follows the log; some do not follow it.
_IS_READY: Final = """() => document.readyState === "complete" && (
    document.querySelector("[data-still], .notice.bad") || document.querySelector("#following[data-state=live]"))"""


@dataclass(frozen=True)
class Look:
    """A way to look at a page."""

    name: str
    width: int
    scheme: Any


LOOKS: Final = (Look("light", WIDTH, "light"), Look("dark", WIDTH, "dark"), Look("narrow", 390, "light"))


def days() -> Iterator[str]:
    day = date.fromisoformat(FIRST)
    while day < date.fromisoformat(END):
        yield day.isoformat()
        day += timedelta(days=1)


def play(shop: Shop) -> None:
    """From the first file to one of everything that a page can show."""
    hold = shop.folder / HOLD
    hold.touch()
    shop.wait_until(lambda: shop.ask("datasets")["n"] > 0, "the assets are registered")
    landed = [day for day in days() if day not in (LATE, *list(days())[-2:])]
    for number, day in enumerate(landed):
        whole, cents = 40 + number % 9, "50" if number % 2 else "25"
        shop.land(day, [f"{whole},{cents}"] if day == COMMAS else [f"{whole}.{cents}", f"{whole // 2}.00"])
    shop.databuild(
        "want",
        "create",
        f"stock@{FIRST}..2024-03-28",
        "--together",
        "--comment",
        "the count of every evening",
        by="leo",
    )
    well = [f"sales@{day}" for day in landed if day != COMMAS]
    shop.wait_for("Live", *well[-3:], *well[:3], "stock@2024-03-27")
    margins = ["want", "create", "margin@2024-01-01..2024-03-28", "--together"]
    shop.databuild(*margins, "--comment", "the numbers for the owners", "--priority", "5", by="mia")
    shop.databuild(
        "want",
        "create",
        "report@2024-01-01..2024-03-01",
        "--sla",
        "1s",
        "--comment",
        "the bank asks for the quarter",
        by="anna",
    )
    shop.wait_for("Failed", f"sales@{COMMAS}")
    shop.wait_for("Live", "margin@2024-03-27", "margin@2024-01-02")
    shop.wait_for("UpstreamFailed", f"margin@{COMMAS}", "report@2024-03-01")

    shop.deploy(COUNTS_AGAIN)
    shop.databuild("want", "create", f"stock@{RECOUNTED}", "--rebuild", "--comment", "a shelf was left out", by="leo")
    shop.databuild("operation", "run", "few_rows", "sales", by="anna")
    shop.databuild("operation", "run", "recount", "stock", "--no-wait", by="mia")
    shop.databuild("taint", f"stock@{WRONG}", "--reason", "the cakes were counted twice", by="leo")
    shop.databuild(
        "pause", "stock@2024-03-29..2024-03-31", "--reason", "the shop in the north is closed over Easter", by="anna"
    )
    shop.databuild("want", "create", "margin@2024-03-30", "--ttl", "3d", "--comment", "for Monday", by="mia")
    plan = ["--sla", "1s", "--comment", "how much flour for Easter?"]
    shop.databuild(
        "want", "create", "forecast@2024-01-29", "forecast@2024-02-05", "forecast@2024-02-12", *plan, by="anna"
    )
    shop.wait_until(lambda: len(shop.ask("history", ref=f"stock@{RECOUNTED}")) > 1, "the stock was counted again")
    shop.wait_for("Live", f"stock@{RECOUNTED}")
    shop.wait_for("Building", "forecast@2024-02-05")


def pages(shop: Shop) -> dict[str, str]:
    """Every page of the shop, by the name of its picture."""
    live = f"margin@{RECOUNTED}"
    uuid = shop.canonical(live)
    first, second = (instance["uuid"] for instance in shop.ask("history", ref=f"stock@{RECOUNTED}")[:2])
    wants = shop.ask("wants", open="", limit="100")["wants"]
    comments = {want["comment"]: want["id"] for want in wants}
    failed = f"sales@{COMMAS}"
    return {
        "now": "/",
        "assets": "/assets",
        "calendar": f"/calendar?dataset=margin&ref=margin%40{COMMAS}",
        "calendar-all": "/calendar?dataset=sales",
        "partition": f"/partition?ref=margin%40{RECOUNTED}",
        "partition-rebuilt": f"/partition?ref=stock%40{RECOUNTED}",
        "partition-failed": f"/partition?ref={quote(failed)}",
        "partition-behind": "/partition?ref=report%402024-03-01",
        "partition-tainted": f"/partition?ref=stock%40{WRONG}",
        "partition-then": f"/partition?ref=stock%40{RECOUNTED}&as_of=40",
        "partition-missing": "/partition?ref=stock%402024-03-31",
        "lineage-small": f"/lineage?instance={uuid}",
        "lineage": f"/lineage?instance={shop.canonical('week@2024-01-29')}&levels=3",
        "compare": f"/diff?a={first}&b={second}",
        "receipt": f"/receipt?instance={uuid}",
        "rows": "/sample?ref=sales%402024-03-12",
        "wants": "/wants",
        "wants-all": "/wants?ended=1&derivative=true",
        "want": f"/want?name={comments['the bank asks for the quarter']}",
        "want-many": f"/want?name={comments['the numbers for the owners']}",
        "plan": "/plan?ref=sales%402024-03-05..2024-03-07&what=taint&downstream=true",
        "plan-build": "/plan?ref=margin%402024-03-01..2024-03-31",
        "plan-empty": "/plan",
        "plan-error": "/plan?ref=nothing%402024",
        "arcs": "/arcs",
        "arc": "/arc?name=week",
        "arc-sales": "/arc?name=sales",
        "gaps": "/gaps?dataset=sales&start=2024-03-01&end=2024-04-01",
        "gaps-newest": "/gaps?dataset=week",
        "operations": "/operations",
        "operation": f"/operation?id={shop.ask('operations')['ended'][0]['id']}",
        "operation-running": "/operation?id=stock.recount.1",
        "delegations": "/delegations?derived=true",
        "confirm-taint": "/confirm/taint?refs=sales%402024-03-12&downstream=true&back=/partition?ref=sales%402024-03-12",
        "confirm-retry": f"/confirm/retry?refs={quote(failed)}",
        "confirm-want": "/confirm/want",
        "confirm-want-2": "/confirm/want?refs=margin%402024-03-01..2024-03-31",
        "confirm-cancel": f"/confirm/cancel?wants={comments['the bank asks for the quarter']}",
        "confirm-pause": "/confirm/pause?refs=stock%402024-03-12",
        "confirm-revert": f"/confirm/revert?ref=stock%40{RECOUNTED}&to={first}",
        "confirm-operation": "/confirm/operation-start?dataset=sales",
        "error-404": "/partition?ref=nothing%402024-01-01",
        "error-page": "/nothing",
        "error-400": "/calendar?dataset=sales&offset=x",
    }


#: The pictures of the docs, each with its size; the reason of a cell is beside a calendar only if there is room.
OF_THE_DOCS: Final = {
    "now": (WIDTH, 800),
    "calendar": (1380, 490),
    "gaps": (WIDTH, 760),
    "partition": (WIDTH, 800),
    "lineage": (WIDTH, 600),
    "plan": (WIDTH, 720),
    "compare": (WIDTH, 860),
}


def shoot(browser: Browser, url: str, file: Path, look: Look, height: int | None = None) -> None:
    """One picture: of a height, or of the whole page."""
    page = browser.new_page(viewport={"width": look.width, "height": height or WIDTH}, color_scheme=look.scheme)
    page.goto(url)
    page.wait_for_function(_IS_READY, timeout=MAX_PAGE_SECONDS * 1000)
    page.screenshot(path=file, full_page=height is None, animations="disabled")
    page.close()


def shoot_docs(shop: Shop, browser: Browser) -> None:
    """The pictures of the docs."""
    urls = pages(shop)
    for name, (width, height) in OF_THE_DOCS.items():
        file = DOCS / f"pages-{name}.png"
        shoot(browser, shop.pages + urls[name], file, replace(LOOKS[0], width=width), height)
        _make_smaller(file)
        print(f"   {file} has {file.stat().st_size:,} bytes.", flush=True)


def shoot_all(shop: Shop, browser: Browser, folder: Path, only: str) -> None:
    """Every page whose name has the text, in each look."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, path in pages(shop).items():
        for look in LOOKS:
            if only in name:
                shoot(browser, shop.pages + path, folder / f"{name}.{look.name}.png", look)


def _make_smaller(file: Path) -> None:
    if shutil.which("pngquant"):
        subprocess.run(
            ["pngquant", "--force", "--skip-if-larger", "--strip", "--output", file, "128", file],
            check=False,
            timeout=60,
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--serve", action="store_true", help="play the three months, and leave the pages open")
    parser.add_argument("--port", type=int, help="of a shop that is open, in place of a new one")
    parser.add_argument(
        "--all", type=Path, metavar="FOLDER", help="every page in light, dark and narrow, instead of the docs'"
    )
    parser.add_argument("--only", default="", help="with --all: pages whose name has this text")
    given = parser.parse_args()
    shop = Shop(FOLDER, definitions, COUNTS, given.port)
    if given.port:
        _shoot(shop, given)
        return 0
    for sign in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(sign, signal.default_int_handler)
    try:
        with shop.open():
            play(shop)
            if given.serve:
                print(f"The pages are at {shop.pages}/. Ctrl-C ends them.", flush=True)
                signal.pause()
            _shoot(shop, given)
    except KeyboardInterrupt:
        print("Ended.")
    return 0


def _shoot(shop: Shop, given: argparse.Namespace) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        if given.all:
            shoot_all(shop, browser, given.all, given.only)
        else:
            shoot_docs(shop, browser)
        browser.close()


if __name__ == "__main__":
    sys.exit(main())
