"""The story of `make story` up to its red cell, and from there what an engineer on call does, in Chromium."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.support.chromium import running_chromium
from tools.story import Shop, after_the_bug, until_the_bug
from tools.story_project import READS_COMMAS, WEDNESDAY, WEEK

pytestmark = pytest.mark.timeout(600)

MAX_PAGE_SECONDS = 60
MAX_CLICKS = 5
CAUSE = f"sales@{WEDNESDAY}"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with Shop(tmp_path_factory.mktemp("story") / "shop").open() as shop:
        until_the_bug(shop)
        yield shop


class Clicks:
    """Clicks on links and buttons of a page, counted."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.n = 0

    def link(self, name: str) -> None:
        self.n += 1
        self.page.get_by_role("link", name=name, exact=True).first.click()

    def cell(self, label: str) -> None:
        self.n += 1
        self.page.get_by_label(label).click()

    def button(self, name: str) -> None:
        self.n += 1
        self.page.get_by_role("button", name=name, exact=True).click()


@pytest.mark.long("the shop is a deployment")
@pytest.mark.browser
def test_from_the_red_cell_to_the_repair_it_is_at_most_five_clicks(shop: Shop) -> None:
    shop.deploy(READS_COMMAS)

    with running_chromium() as chromium:
        page = chromium.new_page()
        page.set_default_timeout(MAX_PAGE_SECONDS * 1000)
        page.goto(f"{shop.pages}/calendar?dataset=week")
        clicks = Clicks(page)
        clicks.cell(f"{WEEK.partition('@')[2]}: upstream failed")
        page.get_by_text(f"needs {CAUSE}, which failed").first.wait_for()
        clicks.link(CAUSE)
        page.get_by_text("could not convert string to float").first.wait_for()
        clicks.link("Retry")
        page.get_by_label("Your name").fill("Anna")
        page.get_by_role("textbox", name="Reason").fill("the code reads commas now")
        clicks.button("Retry")
        page.get_by_text("Done: ").first.wait_for()

        shop.wait_for("Live", CAUSE, WEEK)
        page.goto(f"{shop.pages}/calendar?dataset=week")
        page.get_by_label(f"{WEEK.partition('@')[2]}: live").wait_for()

    assert clicks.n <= MAX_CLICKS
    rows = shop.ask("sample", ref=CAUSE)
    assert "12.5" in str(rows)


def test_a_story_removes_no_files_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("four years")

    with pytest.raises(SystemExit, match="files of something else"), Shop(tmp_path).open():
        pass

    assert (tmp_path / "thesis.txt").read_text() == "four years"


@pytest.mark.long("the shop is a deployment")
@pytest.mark.browser
def test_a_second_story_in_the_folder_of_one_that_runs_removes_nothing(shop: Shop) -> None:
    names = sorted(path.name for path in shop.folder.iterdir())

    with pytest.raises(SystemExit, match=rf"as processes {os.getpid()} and \d+\. End it"), Shop(shop.folder).open():
        pass

    assert sorted(path.name for path in shop.folder.iterdir()) == names
    assert shop.ask("head")["seq"] > 0


@pytest.mark.long("the shop is a deployment")
@pytest.mark.extended
def test_the_story_goes_to_its_end(tmp_path: Path) -> None:
    with Shop(tmp_path / "shop").open() as shop:
        until_the_bug(shop)
        after_the_bug(shop)

        (operation,) = shop.ask("operations")["ended"]
        assert (operation["done"], operation["state"]) == (7, "success")
