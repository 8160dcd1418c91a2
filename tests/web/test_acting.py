"""Every action over HTTP: its dry run, its confirmation, its command in the log, and what is refused before any of it."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator
from starlette.testclient import TestClient

from databuild_dagster.model.states import InstanceState, WantState
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.web.acting import MAX_BODY_BYTES
from databuild_dagster.web.action import Rehearsal
from databuild_dagster.web.actions import actions
from databuild_dagster.web.settings import Settings
from tests.support.browser import HTML, ORIGIN, act, confirmation, form_of, sent
from tests.support.homes import Home
from tests.support.pages_world import (
    API,
    ATTRIBUTE,
    BEARER,
    DAY,
    MARKUP,
    MONTH,
    OTHER_DAY,
    TOKEN,
    PagesWorld,
    call,
    mounted,
)

ACTIONS = {action.name: action for action in actions()}


def prepared(world: PagesWorld, action: str, folder: Path) -> dict[str, Any]:
    """The fields of a call of an action that the state allows."""
    match action:
        case "want":
            return {
                "refs": ["orders@2023-01-01..2023-01-03"],
                "comment": "for the report",
                "ttl": "12h",
                "rebuild": True,
            }
        case "cancel":
            return {"wants": [world.want(DAY)], "reason": "not needed"}
        case "cancel-job-run":
            return {"job_runs": [world.job_run(DAY)]}
        case "retry":
            world.fail(DAY)
            return {"refs": [DAY], "reason": "repaired"}
        case "taint":
            world.live(DAY)
            world.succeed(MONTH, inputs=[DAY])
            return {"refs": [DAY], "reason": "wrong", "downstream": True}
        case "untaint":
            world.live(DAY)
            return {"taint": world.taint(DAY, reason="wrong")}
        case "revert":
            home = Home(world, Warehouse(str(folder)))
            first = home.live("whole")
            home.live_again("whole")
            return {"ref": "whole", "to": first}
        case "pause":
            return {"refs": ["orders"], "reason": "the source moves", "until": "12h"}
        case "resume":
            world.pause("orders", reason="the source moves")
            return {"refs": ["orders"]}
        case "operation-start":
            world.live(DAY)
            return {
                "type": "compact",
                "dataset": "orders",
                "arg": {"target_bytes": 1_000_000},
                "partitions": ["2023-01-01"],
            }
        case "operation-cancel":
            world.live(DAY)
            from databuild_dagster.features.operations.actions import operation_manager

            manager = operation_manager(world.state_behind_pages(), "tester")
            return {"operation": str(manager.start("compact", "orders", {"target_bytes": 1_000_000}))}
    raise AssertionError(action)


#: Of actions over two build states the tests are with their features.
@pytest.fixture(params=[name for name in ACTIONS if name != "promote"])
def action(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


def test_an_action_answers_as_its_type_and_the_document_say_and_is_done_once(
    acting: TestClient, own_world: PagesWorld, document: dict[str, Any], action: str, tmp_path: Path
) -> None:
    described = document["paths"][f"/actions/{action}"]["post"]
    body = described["requestBody"]["content"]["application/json"]["schema"]
    shape = described["responses"]["200"]["content"]["application/json"]["schema"]
    fields = {**prepared(own_world, action, tmp_path), "command_id": "once"}
    before = own_world.seq

    first = call(acting, action, fields)
    after = own_world.seq
    second = call(acting, action, fields)

    assert first.status_code == 200, first.text
    msgspec.json.decode(first.content, type=ACTIONS[action].answer, strict=True, dec_hook=lambda kind, _: kind())
    assert described["security"] == [{"bearer": []}, {"page": []}]
    Draft202012Validator(body).validate({"actor": "nightly", **fields})
    Draft202012Validator({**shape, "components": document["components"]}).validate(first.json())
    assert after > before
    assert (second.status_code, own_world.seq) == (200, after)
    (event, *_) = own_world.queries.events.after(before)
    assert event.actor == "api:nightly (unverified)"


def test_a_dry_run_of_an_action_records_nothing(
    acting: TestClient, own_world: PagesWorld, action: str, tmp_path: Path
) -> None:
    fields = prepared(own_world, action, tmp_path)
    before = own_world.seq

    answer = call(acting, action, {**fields, "dry_run": True})

    found = msgspec.json.decode(answer.content, type=Rehearsal, strict=True)
    assert (answer.status_code, own_world.seq) == (200, before)
    assert found.action == action
    assert found.would


def test_a_confirmed_form_does_the_action_and_leads_back(
    acting: TestClient, own_world: PagesWorld, action: str, tmp_path: Path
) -> None:
    fields = prepared(own_world, action, tmp_path)
    subjects = {name: value for name, value in fields.items() if name in ACTIONS[action].subjects}
    typed = {name: value for name, value in fields.items() if name in ("reason", "comment")}
    if action == "operation-start":
        typed["arg"] = '{"target_bytes": 1000000}'
    before = own_world.seq

    answer = act(acting, action, typed, **subjects, back=f"/partition?ref={DAY}")

    assert answer.status_code == 303, answer.text
    assert answer.headers["location"].startswith("/databuild/partition?ref=orders%402023-01-01&done=web%2F")
    assert own_world.seq > before
    page = acting.get(answer.headers["location"].removeprefix("/databuild"))
    assert "Done: " in page.text
    assert "by web:Anna (unverified)" in page.text


def test_a_form_that_is_sent_twice_does_it_once(acting: TestClient, own_world: PagesWorld) -> None:
    form = form_of(confirmation(acting, "want", refs=DAY).text)

    first = sent(acting, "want", form, actor="Anna")
    after = own_world.seq
    second = sent(acting, "want", form, actor="Anna")

    assert first.headers["location"] == second.headers["location"]
    assert (own_world.seq, len(own_world.open_wants(DAY))) == (after, 1)


def test_a_name_is_typed_once_and_kept_in_a_cookie_of_the_pages(acting: TestClient, own_world: PagesWorld) -> None:
    first = act(acting, "want", {}, refs=DAY)
    second = dict(form_of(confirmation(acting, "want", refs=OTHER_DAY).text))

    assert second["actor"] == "Anna"
    kept = next(text for text in first.headers.get_list("set-cookie") if text.startswith("databuild_name=Anna;"))
    assert {"HttpOnly", "Path=/databuild", "SameSite=strict"} <= {part.strip() for part in kept.split(";")}


def test_a_command_without_a_name_is_refused_and_keeps_what_was_typed(
    acting: TestClient, own_world: PagesWorld
) -> None:
    before = own_world.seq
    form = form_of(confirmation(acting, "want", refs=DAY).text)

    refused = sent(acting, "want", form, comment="for the report")

    assert (refused.status_code, own_world.seq) == (400, before)
    assert "A command needs the name of the person or program that gives it." in refused.text
    again = dict(form_of(refused.text))
    assert (again["comment"], again["command_id"]) == ("for the report", dict(form)["command_id"])
    assert call(acting, "want", {"refs": [DAY], "actor": ""}).json()["error"]["type"] == "NoName"


@pytest.mark.parametrize("name", ["Anna (unverified)", "a\nb", "x" * 101, "\u202eannA"])
def test_a_name_that_could_mislead_a_reader_is_refused(acting: TestClient, own_world: PagesWorld, name: str) -> None:
    before = own_world.seq

    refused = call(acting, "want", {"refs": [DAY], "actor": name})

    assert (refused.status_code, own_world.seq) == (400, before)


@pytest.mark.parametrize(
    ("change", "status", "error"),
    [
        (lambda form, headers: form.update(csrf="0" * 64), 403, "no valid token"),
        (lambda form, headers: form.update(csrf="é"), 403, "no valid token"),
        (lambda form, headers: form.pop("csrf"), 401, "the form of a page"),
        (lambda form, headers: headers.update(cookie="databuild_session=other"), 403, "no valid token"),
        (lambda form, headers: headers.update(origin="http://evil.example"), 403, "comes from another site"),
        (lambda form, headers: headers.update(origin="null"), 403, "comes from another site"),
        (lambda form, headers: headers.update({"sec-fetch-site": "same-site"}), 403, "comes from another site"),
        (lambda form, headers: headers.update({"sec-fetch-site": "none"}), 403, "comes from another site"),
        (lambda form, headers: (headers.pop("origin"), headers.pop("sec-fetch-site")), 403, "names no origin"),
    ],
    ids=[
        "a wrong token", "a token that is no text of ours", "no token", "the token of another browser", "another origin",
        "an origin that is hidden", "another site of the domain", "no site", "no origin at all",
    ],
)  # fmt: skip
def test_a_form_of_another_page_does_nothing(
    acting: TestClient, own_world: PagesWorld, change: Callable[..., Any], status: int, error: str
) -> None:
    form = dict(form_of(confirmation(acting, "want", refs=DAY).text)) | {"actor": "Anna"}
    headers = {**HTML, **ORIGIN}
    before = own_world.seq
    change(form, headers)

    refused = acting.post(f"{API}/actions/want", data=form, headers=headers, follow_redirects=False)

    assert (refused.status_code, own_world.seq) == (status, before)
    assert error in html.unescape(refused.text)


@pytest.mark.parametrize(
    ("authorization", "status", "error"),
    [
        (None, 401, "NoCredentials"),
        ("Basic YW5uYTpzZWNyZXQ=", 401, "NoCredentials"),
        ("Bearer ", 401, "WrongToken"),
        ("Bearer wrong", 401, "WrongToken"),
        (f"Bearer {TOKEN}x", 401, "WrongToken"),
    ],
)
def test_a_caller_without_the_token_does_nothing(
    acting: TestClient, own_world: PagesWorld, authorization: str | None, status: int, error: str
) -> None:
    headers = {} if authorization is None else {"authorization": authorization}
    before = own_world.seq

    refused = acting.post(f"{API}/actions/want", json={"refs": [DAY], "actor": "nightly"}, headers=headers)

    assert (refused.status_code, refused.json()["error"]["type"], own_world.seq) == (status, error, before)
    assert refused.headers["www-authenticate"] == "Bearer"
    assert TOKEN not in refused.text


def test_a_server_without_a_token_refuses_every_caller_that_is_no_page(own_world: PagesWorld) -> None:
    client = mounted(own_world)

    refused = call(client, "want", {"refs": [DAY]})

    assert (refused.status_code, refused.json()["error"]["type"]) == (403, "NoTokenConfigured")


def test_a_read_only_server_changes_nothing_and_has_no_button(
    own_world: PagesWorld, action: str, tmp_path: Path
) -> None:
    fields = prepared(own_world, action, tmp_path)
    settings = Settings(read_only=True, token=TOKEN)
    client = mounted(own_world, settings)
    before = own_world.seq

    refused = call(client, action, fields)
    page = confirmation(client, action, **fields)

    assert (refused.status_code, page.status_code, own_world.seq) == (403, 403, before)
    assert refused.json()["error"]["type"] == "ReadOnlyServer"
    for path in ("/", f"/partition?ref={DAY}", "/wants", f"/calendar?dataset=orders&ref={DAY}", "/operations"):
        assert "/confirm/" not in client.get(path).text


def test_a_get_of_an_action_changes_nothing(acting: TestClient, own_world: PagesWorld, action: str) -> None:
    before = own_world.seq

    refused = acting.get(f"{API}/actions/{action}", headers=BEARER)

    assert (refused.status_code, refused.headers["allow"], own_world.seq) == (405, "POST", before)
    assert refused.json()["error"]["type"] == "OnlyPosted"


@pytest.mark.parametrize(
    ("content", "kind", "status", "error"),
    [
        (b"refs=orders", "text/plain", 415, "WrongMediaType"),
        (b"{}", "", 415, "WrongMediaType"),
        (b"refs=" + b"x" * MAX_BODY_BYTES, "application/x-www-form-urlencoded", 413, "BodyTooLarge"),
        (b"&".join([b"refs=a"] * 1_001), "application/x-www-form-urlencoded", 400, "BadBody"),
        (b"refs=%ff", "application/x-www-form-urlencoded", 400, "BadBody"),
        (b"refs=a", "application/json", 400, "BadBody"),
        (b"[]", "application/json", 400, "BadBody"),
        (b"[" * 50_000, "application/json", 400, "BadBody"),
        (b'{"refs": [1]}', "application/json", 400, "BadBody"),
        (b'{"actor": "a", "actor": "b"}', "application/json", 400, "RepeatedParameter"),
        (b'{"actor": "a", "refs": ["orders@2023-01-01"], "odd": 1}', "application/json", 400, "UnknownParameter"),
        (b'{"actor": "a"}', "application/json", 400, "MissingParameter"),
        (b'{"actor": "a", "refs": ["orders@2023-01-01"], "ttl": "soon"}', "application/json", 400, "InvalidRequest"),
        (
            b'{"actor": "a", "refs": ["orders@2023-01-01"], "comment": "a\\nb"}',
            "application/json",
            400,
            "InvalidRequest",
        ),
        (
            b'{"actor": "a", "refs": ["orders@2023-01-01"], "command_id": "a#1"}',
            "application/json",
            400,
            "BadCommandId",
        ),
        (b'{"actor": "a", "refs": ["ticks@*"]}', "application/json", 400, "TooManyRefs"),
        (b'{"actor": "a", "refs": ["nothing@x"]}', "application/json", 404, "UnknownAsset"),
        (b'{"actor": "a", "refs": ["orders@1999-01-01"]}', "application/json", 404, "UnknownPartition"),
    ],
)
def test_a_body_that_cannot_be_is_refused_by_one_sentence(
    acting: TestClient, own_world: PagesWorld, content: bytes, kind: str, status: int, error: str
) -> None:
    before = own_world.seq

    refused = acting.post(f"{API}/actions/want", content=content, headers={**BEARER, "content-type": kind})

    assert (refused.status_code, refused.json()["error"]["type"], own_world.seq) == (status, error, before)
    assert len(refused.content) < 2_500


def test_no_text_of_an_action_becomes_markup(acting: TestClient, own_world: PagesWorld) -> None:
    texts = [MARKUP, ATTRIBUTE]
    for day, text in enumerate(texts, 1):
        ref = f"orders@2023-01-0{day}"
        page = confirmation(acting, "want", refs=ref, comment=text, back=f"/wants?source={text}")
        answer = sent(acting, "want", form_of(page.text), actor=text.replace("(", "").replace(")", ""))
        own_world.live(ref)
        tainted = call(acting, "taint", {"refs": [ref], "reason": text})
        assert (answer.status_code, tainted.status_code) == (303, 200)
        for shown in (page, acting.get("/"), acting.get(f"/partition?ref={ref}"), acting.get("/wants?ended=1")):
            assert "<script>alert" not in shown.text
            assert "<img src=x" not in shown.text
    assert html.unescape(acting.get("/").text).count(MARKUP) >= 1


@pytest.mark.parametrize(
    "back", ["//evil.example/", "https://evil.example", "/static/pages.css", "/nothing", "\\\\evil"]
)
def test_a_form_leads_back_to_a_page_of_this_server_only(acting: TestClient, own_world: PagesWorld, back: str) -> None:
    answer = act(acting, "want", {}, refs=DAY, back=back)

    assert answer.headers["location"].startswith("/databuild/?done=web%2Fwant%2F")


def test_a_confirmation_shows_what_the_options_change(acting: TestClient, own_world: PagesWorld) -> None:
    own_world.live(DAY)
    own_world.succeed(MONTH, inputs=[DAY])

    alone = confirmation(acting, "taint", refs=DAY)
    both = confirmation(acting, "taint", refs=DAY, downstream="true")

    assert "Readers of 1 partition would see a taint." in alone.text
    assert "1 live partition built from this data would be left as it is, and stale." in alone.text
    assert "Readers of 2 partitions would see a taint." in both.text
    assert ("downstream", "true") in form_of(both.text)
    assert "downstream" not in dict(form_of(alone.text))


def test_a_confirmation_asks_for_what_it_is_about(acting: TestClient, own_world: PagesWorld) -> None:
    asked = confirmation(acting, "want")

    assert form_of(asked.text) == [("refs", ""), ("back", "/")]
    refused = confirmation(acting, "want", refs="orders@1999-01-01")
    assert refused.status_code == 400
    assert "orders@1999-01-01" in html.unescape(refused.text)
    assert 'method="post"' not in refused.text


def test_a_revert_whose_files_are_gone_names_no_path(acting: TestClient, own_world: PagesWorld, tmp_path: Path) -> None:
    fields = prepared(own_world, "revert", tmp_path)
    for file in tmp_path.rglob(f"*{fields['to']}*/*.parquet"):
        file.unlink()

    refused = call(acting, "revert", fields)

    assert (refused.status_code, refused.json()["error"]["type"]) == (400, "CannotRevert")
    assert str(tmp_path) not in refused.text


def test_a_canceled_job_run_fails_what_waits_for_it(acting: TestClient, own_world: PagesWorld) -> None:
    own_world.want(MONTH)
    own_world.miss(MONTH, DAY)
    job_run = own_world.job_run(DAY)

    dry = call(acting, "cancel-job-run", {"job_runs": [job_run], "dry_run": True}).json()
    (done,) = call(acting, "cancel-job-run", {"job_runs": [job_run]}).json()

    assert f"{DAY} would fail, and with it {MONTH}; 1 want waits for that." in dry["would"]
    assert done["waiting_refs"] == [MONTH]
    assert own_world.queries.canonical.states([DAY])[DAY] is InstanceState.FAILED


def test_a_retry_opens_the_first_failure_and_wants_again_what_failed(acting: TestClient, own_world: PagesWorld) -> None:
    want = own_world.want(DAY)
    own_world.fail(DAY)
    assert own_world.want_state(want) is WantState.FAILED

    done = call(acting, "retry", {"refs": [DAY]}).json()

    assert (done["opened"], len(done["wants"])) == ([DAY], 1)


def test_a_retry_of_what_is_alike_opens_all_that_failed_for_the_reason(
    acting: TestClient, own_world: PagesWorld
) -> None:
    other = "orders@2023-01-03"
    for ref in (DAY, other):
        own_world.fail(ref)

    done = call(acting, "retry", {"refs": [DAY], "alike": True}).json()

    assert {DAY, other} <= set(done["opened"])


def test_the_preview_of_a_retry_says_that_what_failed_is_built_again(acting: TestClient, own_world: PagesWorld) -> None:
    own_world.want(DAY)
    own_world.fail(DAY)

    page = acting.get("/confirm/retry", params={"refs": DAY, "back": "/"}).text

    assert "to be built again" in page
    assert "tainted" not in page


def test_now_retries_all_that_failed_alike_by_one_button(acting: TestClient, own_world: PagesWorld) -> None:
    for day in range(1, 5):
        own_world.fail(f"orders@2023-01-0{day}")
    own_world.fail("orders@2023-01-05", error="another")

    page = acting.get("/").text

    (group,) = [
        html.unescape(link) for link in re.findall(r'href="/databuild(/confirm/retry[^"]*)"[^>]*>Retry \d+<', page)
    ]
    assert "alike=true" in group
    assert group.count("refs=") == 1
    assert re.search(r">Retry all<", page)
