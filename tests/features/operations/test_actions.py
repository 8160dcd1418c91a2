"""Operations are started and canceled from their pages; the argument is any JSON, as on the command line, and no more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from databuild_dagster.features.operations.actions import operation_manager
from tests.support.browser import confirmation, form_of, sent
from tests.support.pages_world import DAY, MONTH, PagesWorld, acting, call, own_world

__all__ = ["acting", "own_world"]

#: An installed package with a type whose argument may be anything.
TYPES = """
from databuild_dagster import DistributedOperation


class Anything(DistributedOperation):
    type_name = "anything"

    def start_or_resume_job(self, arg, partition, context) -> None:
        pass
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "types_of_a_package.py").write_text(TYPES)
    described = tmp_path / "types_of_a_package-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: types-of-a-package\nVersion: 1.0\n")
    entry = "[databuild_dagster.operations]\nanything = types_of_a_package:Anything\n"
    (described / "entry_points.txt").write_text(entry)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.parametrize("arg", [[], [1, "a", None], [["a", 1]], {"a": [1, {"b": 2}]}, "a text", "1", 1.5, True])
def test_an_argument_of_any_json_comes_as_it_is(
    acting: TestClient, own_world: PagesWorld, installed: None, arg: Any
) -> None:
    own_world.live(DAY)

    started = call(acting, "operation-start", {"type": "anything", "dataset": "orders", "arg": arg})

    assert started.status_code == 200, started.text
    manager = operation_manager(own_world.state_behind_pages(), "tester")
    (id,) = manager.running()
    assert manager.read(id).arg.arg == arg


def test_an_argument_in_a_form_is_the_text_of_its_json(
    acting: TestClient, own_world: PagesWorld, installed: None
) -> None:
    own_world.live(DAY)
    form = form_of(confirmation(acting, "operation-start", type="anything", dataset="orders").text)

    refused = sent(acting, "operation-start", form, actor="Anna", arg="[1, ")
    started = sent(acting, "operation-start", form, actor="Anna", arg='[1, "a"]')

    assert (refused.status_code, started.status_code) == (400, 303)
    manager = operation_manager(own_world.state_behind_pages(), "tester")
    (id,) = manager.running()
    assert manager.read(id).arg.arg == [1, "a"]


@pytest.mark.parametrize(
    "arg",
    ["[" * 40_000 + "]" * 40_000, "[" * 900 + "]" * 900, "NaN", "1" * 5_000, '"\\ud800"'],
    ids=["deep", "less deep", "NaN", "a long number", "half of a pair"],
)
def test_an_argument_that_cannot_be_stored_is_refused_or_stored_as_another_value(
    acting: TestClient, own_world: PagesWorld, installed: None, arg: str
) -> None:
    """Never a mistake of ours: the engine stores texts with half of a surrogate pair escaped, and no number for NaN."""
    own_world.live(DAY)
    body = '{"actor": "nightly", "type": "anything", "dataset": "orders", "arg": ' + arg + "}"
    headers = {"authorization": "Bearer a-token-of-a-program-1234", "content-type": "application/json"}

    answers = [
        acting.post("/api/v1/actions/operation-start", content=body[:-1] + more, headers=headers)
        for more in (', "dry_run": true}', "}")
    ]

    assert {answer.status_code for answer in answers} <= {200, 400}
    assert all(json.loads(answer.content) for answer in answers)


def test_operations_are_started_and_canceled_from_their_pages(acting: TestClient, own_world: PagesWorld) -> None:
    own_world.live(DAY)
    manager = operation_manager(own_world.state_behind_pages(), "tester")
    running = manager.start("compact", "orders", {"target_bytes": 1_000_000})

    listed = acting.get("/operations").text
    page = acting.get(f"/operation?id={running}").text
    form = confirmation(acting, "operation-start")

    assert "/confirm/operation-start?" in listed
    assert f"/confirm/operation-cancel?operation={running}" in page
    assert form.status_code == 200
    assert 'name="type"' in form.text


def test_an_operation_is_not_started_for_an_id_of_another_one(acting: TestClient, own_world: PagesWorld) -> None:
    own_world.live(DAY, MONTH)
    fields = {"type": "compact", "arg": {"target_bytes": 1_000_000}, "command_id": "once"}
    started = call(acting, "operation-start", {"dataset": "orders", **fields})
    before = own_world.seq

    refused = call(acting, "operation-start", {"dataset": "revenue", **fields})
    again = call(acting, "operation-start", {"dataset": "orders", **fields})

    assert (refused.status_code, own_world.seq) == (409, before)
    assert again.json() == started.json()
