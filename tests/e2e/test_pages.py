"""The pages of databuild in a real browser, on a real `databuild dev`: in light, dark and narrow, each without a violation
of axe's accessibility rules and without an error in the console.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser as Chromium
from playwright.sync_api import ConsoleMessage, Page

from databuild_dagster.model.states import InstanceState
from tests.support.chromium import running_chromium

from .conftest import Dagster

pytestmark = [pytest.mark.long("our pages in a browser"), pytest.mark.browser, pytest.mark.timeout(600)]

AXE = Path(__file__).parent / "vendor" / "axe-4.14.1.min.js"
#: What a page may take to show what it is asked for, on two busy cores.
MAX_PAGE_SECONDS = 60
#: The key of a partition, the error of its build and the reason of a taint. As markup, each would open a dialog.
MARKUP = "<img src=x onerror=alert(1)>"
MARKED = f"odd@{MARKUP}"
#: Pages that no event fetches again.
STILL = ("/receipt", "/sample")
OPERATION = "odd.patient.1"
#: The argument of `validate`.
NOT_NULL = json.dumps({"constraints": [{"rule": "not_null", "column": "amount"}]})
FAILED, BEHIND, LIVE, TAINTED = "orders@2024-01-02", "revenue@2024-01-01", "orders@2024-01-01", "stock@2024-01-01"

DEFINITIONS = f"""
import dagster as dg
import pandas as pd

from databuild_dagster import BuildContext, DistributedOperation, build_definitions, databuild_asset

daily = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-02-01")
monthly = dg.MonthlyPartitionsDefinition("2024-01-01", end_date="2024-02-01")


@databuild_asset(partitions_def=daily)
def orders(context: BuildContext) -> pd.DataFrame:
    if context.partition_key == "2024-01-02":
        raise ValueError("the till was closed {MARKUP}")
    return pd.DataFrame({{"day": [context.partition_key], "amount": [2.0]}})


@databuild_asset(partitions_def=monthly)
def revenue(orders: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({{"revenue": [orders["amount"].sum()]}})


@databuild_asset(partitions_def=daily)
def stock(orders: pd.DataFrame) -> pd.DataFrame:
    return orders


@databuild_asset(partitions_def=dg.StaticPartitionsDefinition(["plain", "acted on", "{MARKUP}"]), sample=True)
def odd(context: BuildContext) -> pd.DataFrame:
    return pd.DataFrame({{"{MARKUP}": ["{MARKUP}"]}})


@databuild_asset(partitions_def=dg.StaticPartitionsDefinition(["plain", "{MARKUP}"]), subscribe="odd")
def echo(odd: pd.DataFrame) -> pd.DataFrame:
    return odd


class Patient(DistributedOperation):
    type_name = "patient"
    # Its jobs are retried without end, so that it runs while the pages are looked at.
    can_fail = False

    def start_or_resume_job(self, arg, partition, context) -> None:
        raise ValueError("not yet {MARKUP}")


defs = build_definitions([orders, revenue, stock, odd, echo], operations=[Patient()])
"""


@dataclass(frozen=True)
class Look:
    """A way to look at a page."""

    name: str
    width: int = 1400
    scheme: Any = "light"


LOOKS = (Look("light"), Look("dark", scheme="dark"), Look("narrow", width=390))


@dataclass
class Visit:
    """A page of a browser, with what went wrong on it."""

    page: Page
    root: str
    wrong: list[str] = field(default_factory=list)

    def open(self, path: str) -> None:
        self.page.goto(self.root + path)
        self.page.get_by_text("static" if path.startswith(STILL) else "following", exact=True).wait_for()

    def asks(self, button: str) -> None:
        """Press a button of the page, and read its confirmation."""
        self.page.get_by_role("link", name=button, exact=True).first.click()
        self.sees("What it will touch")

    def confirms(self, button: str, done: str, **typed: str) -> None:
        for label, text in typed.items():
            self.page.get_by_label(label.replace("_", " ").capitalize()).fill(text)
        self.page.get_by_role("button", name=button, exact=True).click()
        self.sees(f"Done: {done}")

    def violations(self) -> list[Any]:
        """The axe rules that the page breaks, each with its first element."""
        found = self.page.evaluate(f"{AXE.read_text()}; axe.run()")
        return [(rule["id"], rule["nodes"][0]["html"][:200]) for rule in found["violations"]]

    def sees(self, *texts: str) -> None:
        for text in texts:
            self.page.get_by_text(text).first.wait_for()


@pytest.fixture(scope="module")
def dagster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dagster]:
    """Partitions in several states; the daemon builds what is wanted."""
    with Dagster(tmp_path_factory.mktemp("pages"), DEFINITIONS).running() as dagster:
        dagster.databuild("want", "create", BEHIND, "stock@2024-01-01", "--comment", MARKUP, "--fail-fast")
        dagster.databuild("want", "create", MARKED)
        dagster.wait_until(lambda: dagster.state(BEHIND) is InstanceState.UPSTREAM_FAILED, "the month has failed")
        dagster.wait_until(lambda: dagster.are_live(LIVE, TAINTED, MARKED), "the others are live")
        dagster.databuild("operation", "run", "patient", "odd", "--no-wait")
        dagster.databuild("pause", "stock", "--reason", MARKUP)
        dagster.databuild("taint", TAINTED, "--reason", MARKUP)
        yield dagster


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with running_chromium() as chromium:
        yield chromium


@pytest.fixture(params=LOOKS, ids=lambda look: look.name)
def look(request: pytest.FixtureRequest) -> Look:
    found: Look = request.param
    return found


def visit(browser: Chromium, dagster: Dagster, look: Look) -> Visit:
    page = browser.new_page(viewport={"width": look.width, "height": 900}, color_scheme=look.scheme)
    page.set_default_timeout(MAX_PAGE_SECONDS * 1000)
    visit = Visit(page, f"http://127.0.0.1:{dagster.port}/databuild")

    def heard(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            visit.wrong.append(f"{page.url}: {message.text}")

    page.on("console", heard)
    page.on("pageerror", lambda error: visit.wrong.append(f"{page.url}: {error}"))
    page.on("dialog", lambda dialog: (visit.wrong.append(f"{page.url}: {dialog.message}"), dialog.dismiss()))
    return visit


@pytest.fixture
def visited(browser: Chromium, dagster: Dagster) -> Iterator[Visit]:
    found = visit(browser, dagster, LOOKS[0])
    yield found
    found.page.close()
    assert found.wrong == []


def test_every_page_is_accessible_and_fits_the_width(browser: Chromium, dagster: Dagster, look: Look) -> None:
    (want, *_) = dagster.databuild("want", "list", "--all", "--ref", BEHIND)
    live = dagster.queries.canonical.of([LIVE])[LIVE].uuid
    paths = [
        "/",
        "/assets",
        f"/calendar?dataset=orders&ref={FAILED}",
        f"/calendar?dataset=odd&ref={quote(MARKED)}",
        f"/partition?ref={LIVE}",
        f"/partition?ref={BEHIND}",
        "/numbers?dataset=orders",
        "/taints",
        "/environments",
        f"/search?q={quote(MARKED)}",
        f"/lineage?instance={live}",
        f"/lineage?instance={live}&as_of={dagster.queries.events.head().seq - 1}",
        f"/diff?a={live}&b={dagster.queries.canonical.of([TAINTED])[TAINTED].uuid}",
        f"/receipt?instance={live}",
        f"/sample?ref={quote(MARKED)}",
        f"/partition?ref={TAINTED}",
        f"/partition?ref={quote(MARKED)}&as_of=5",
        "/wants?ended=1&derivative=true",
        f"/want?name={want['id']}",
        "/plan",
        f"/plan?ref={BEHIND}",
        f"/plan?ref={LIVE}&what=taint&downstream=true",
        f"/plan?ref={quote(MARKED)}&what=taint",
        "/arcs",
        "/arc?name=echo",
        "/gaps?dataset=stock&start=2024-01-01&end=2024-01-09",
        "/operations",
        f"/operation?id={OPERATION}",
        "/delegations?derived=true",
    ]
    found = visit(browser, dagster, look)

    violations, too_wide = {}, []
    for path in paths:
        found.open(path)
        violations[path] = found.violations()
        if found.page.evaluate("document.documentElement.scrollWidth") > look.width:
            too_wide.append(path)
    found.page.close()

    assert {path: broken for path, broken in violations.items() if broken} == {}
    assert too_wide == []
    assert found.wrong == []


def test_from_a_red_cell_to_the_first_cause_it_is_three_clicks(visited: Visit) -> None:
    visited.open("/assets")
    visited.page.get_by_role("link", name="revenue", exact=True).click()
    visited.page.get_by_label("2024-01-01: upstream failed").click()

    visited.sees("needs orders@2024-01-02, which failed")
    visited.page.get_by_role("link", name=FAILED, exact=True).first.click()

    visited.sees("ValueError: the till was closed", f"databuild retry {FAILED}")
    visited.page.get_by_role("link", name="In Dagster").click()
    visited.page.wait_for_url("**/assets/orders?view=partitions&partition=2024-01-02")
    # Dagster's own page; the words in its console are not ours.
    visited.page.get_by_text("Failed (1)").wait_for()
    visited.wrong.clear()


def test_a_cell_says_why_and_has_a_url_that_can_be_sent(visited: Visit) -> None:
    visited.open("/calendar?dataset=orders")
    visited.page.get_by_label("2024-01-02: failed").click()
    visited.sees("the till was closed")

    assert visited.page.url.endswith(f"/calendar?dataset=orders&ref={quote(FAILED)}")
    visited.page.keyboard.press("ArrowLeft")
    visited.page.keyboard.press("Enter")
    visited.page.get_by_role("complementary", name=LIVE).wait_for()
    assert visited.page.url.endswith(f"ref={quote(LIVE)}")
    visited.page.go_back()
    visited.page.get_by_role("complementary", name=FAILED).wait_for()


def test_several_cells_are_picked_by_mouse_and_by_keys_for_one_action(visited: Visit) -> None:
    visited.open("/calendar?dataset=orders")
    page = visited.page

    # By places that are known before: the cells must not move under the pointer.
    places = [page.get_by_label(f"2024-01-{day}: ").bounding_box() for day in (10, 16)]
    for place, act in zip(places, (page.mouse.down, page.mouse.up), strict=True):
        page.mouse.move(place["x"] + place["width"] / 2, place["y"] + place["height"] / 2, steps=5)
        act()
    visited.sees("7 picked: orders@2024-01-10 to orders@2024-01-16")
    page.keyboard.press("Escape")
    page.get_by_label("2024-01-02: failed").focus()
    page.keyboard.press("End")
    page.keyboard.press("Shift+ArrowLeft")
    visited.sees("2 picked: orders@2024-01-30 to orders@2024-01-31")
    page.get_by_role("link", name="Want", exact=True).click()

    visited.sees("2 wants for 2 partitions would be recorded.")


def test_a_search_is_a_key_away_and_times_are_in_the_zone_that_was_chosen(browser: Chromium, dagster: Dagster) -> None:
    context = browser.new_context(timezone_id="Asia/Tokyo")
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{dagster.port}/databuild/taints")
    first = page.locator("time").first
    assert str(first.get_attribute("title")).endswith(" UTC")

    page.get_by_role("button", name="Times in UTC").click()
    page.keyboard.press("Control+k")
    page.keyboard.type("stock@2024-01-01")
    page.keyboard.press("Enter")

    page.get_by_role("button", name="Times in Asia/Tokyo").wait_for()
    page.get_by_role("link", name=TAINTED, exact=True).wait_for()
    page.go_back()
    page.wait_for_function("document.querySelector('time').title.endsWith(' Asia/Tokyo')")
    context.close()


def test_the_slider_shows_what_readers_saw_earlier(visited: Visit) -> None:
    visited.open(f"/partition?ref={TAINTED}")
    visited.sees("What readers see")

    slider = visited.page.get_by_label("As of")
    slider.focus()
    slider.press("ArrowLeft")

    visited.sees("What readers saw")
    assert "as_of=" in visited.page.url


def test_a_partition_is_copied_whole_by_its_button(browser: Chromium, dagster: Dagster) -> None:
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{dagster.port}/databuild/partition?ref={LIVE}")

    page.get_by_role("button", name=f"Copy {LIVE}", exact=True).click()
    page.locator(".copy[data-done]").wait_for()

    assert page.evaluate("navigator.clipboard.readText()") == LIVE
    context.close()


def test_a_page_shows_a_new_event_without_a_reload(visited: Visit, dagster: Dagster) -> None:
    visited.open("/wants")
    visited.page.evaluate("window.isTheSame = true")
    visited.page.get_by_label("Source").fill("not sent yet")

    (want,) = dagster.databuild("want", "create", "odd@plain", "--comment", "just now")

    visited.sees("just now")
    assert visited.page.evaluate("window.isTheSame") is True
    visited.page.get_by_role("link", name=want["id"][-8:], exact=True).first.wait_for()
    assert visited.page.get_by_label("Source").input_value() == "not sent yet"


def test_every_action_is_confirmed_done_and_named_in_the_log(visited: Visit, dagster: Dagster) -> None:
    new, before = "odd@acted on", dagster.queries.events.head().seq
    visited.open("/wants")
    visited.page.get_by_role("link", name="Record a want").click()
    visited.page.get_by_label("Refs").fill(new)
    visited.page.keyboard.press("Enter")
    visited.sees("1 want for 1 partition would be recorded.")
    visited.confirms("Want", "wanted", your_name="Anna", comment=MARKUP)
    dagster.wait_until(lambda: dagster.are_live(new), "the wanted partition is live")

    visited.open(f"/partition?ref={quote(new)}")
    visited.asks("Pause")
    assert visited.page.get_by_label("Your name").input_value() == "Anna"
    visited.confirms("Pause", "paused", reason="a look at its rows")
    visited.asks("Taint")
    visited.page.get_by_role("link", name="Add: Also what was built from them").click()
    visited.sees("What is built from this data later would be tainted too.")
    visited.confirms("Taint", "tainted", reason=MARKUP)
    visited.page.get_by_role("link", name="Untaint").click()
    visited.sees("Readers would see 1 partition live again.")
    visited.confirms("Untaint", "untainted")
    first = dagster.queries.canonical.of([new])[new].uuid
    visited.asks("Taint")
    visited.confirms("Taint", "tainted", reason="half of the rows")
    visited.asks("Resume")
    visited.confirms("Resume", "resumed")
    dagster.wait_until(lambda: dagster.queries.canonical.of([new])[new].uuid != first, "it is built again")
    dagster.wait_until(lambda: dagster.are_live(new), "the second build is live")
    visited.open(f"/partition?ref={quote(new)}")
    visited.page.get_by_role("link", name="Revert to instance").click()
    visited.confirms("Revert", "reverted")
    actors = {event.actor for event in dagster.queries.events.after(before, 10_000) if event.actor.startswith("web:")}
    assert actors == {"web:Anna (unverified)"}


def test_a_confirmation_is_accessible_and_fits_the_width(browser: Chromium, dagster: Dagster, look: Look) -> None:
    found = visit(browser, dagster, look)
    violations, too_wide = {}, []
    for path in (
        f"/confirm/taint?refs={LIVE}&back=/partition?ref={LIVE}",
        f"/confirm/retry?refs={FAILED}",
        "/confirm/want",
        "/confirm/operation-start",
        f"/confirm/operation-start?type=validate&dataset=orders&arg={quote(NOT_NULL.replace('amount', 'day'))}",
        f"/confirm/operation-cancel?operation={OPERATION}",
    ):
        found.page.goto(found.root + path)
        violations[path] = found.violations()
        if found.page.evaluate("document.documentElement.scrollWidth") > look.width:
            too_wide.append(path)
    found.page.close()

    assert {path: broken for path, broken in violations.items() if broken} == {}
    assert (too_wide, found.wrong) == ([], [])


def test_dagsters_own_pages_and_graphql_are_as_before(visited: Visit, dagster: Dagster) -> None:
    visited.page.goto(f"http://127.0.0.1:{dagster.port}/assets/orders")
    visited.page.get_by_text("orders", exact=True).first.wait_for()
    visited.wrong.clear()

    assert dagster.graphql("{ version }")["version"]
    with urllib.request.urlopen(f"http://127.0.0.1:{dagster.port}/databuild/api/v1/head", timeout=250) as answer:
        assert json.load(answer)["seq"] > 0


def test_dev_names_the_address_of_the_pages(dagster: Dagster) -> None:
    address = f"http://127.0.0.1:{dagster.port}/databuild"

    assert dagster.log.read_text().splitlines().count(f"The pages of databuild will be at {address}") == 1
