"""`want`, `plan`, `explain`, `taint` and `read` in a script, beside the commands of these names."""

import pytest

from databuild_dagster import build, explain, plan, read, taint, want
from databuild_dagster.engine.why.preview import Action
from databuild_dagster.model.errors import NothingToTaint, UnknownAsset
from tests.support.project import Project

DAY, MONTH = "orders@2024-01-30", "revenue@2024-02-01"


def test_a_want_is_recorded_as_its_command_records_it(inside: Project) -> None:
    recorded = want(["orders@2024-01-29..2024-01-31", MONTH], comment="for the report", together=True)

    assert recorded.facts[0].comment == "for the report"
    assert [record.id for record in recorded.facts] == [record["id"] for record in inside.ask("want", "list")]
    head, warning = repr(recorded).splitlines()
    assert head == f"Recorded 1 want as request {recorded.facts[0].request_id}."
    assert warning.startswith("Warning: ")


def test_a_plan_has_a_verdict_on_each_ref(inside: Project) -> None:
    planned = plan(DAY)

    assert planned.facts.verdicts[DAY].action is Action.BUILD
    assert "<td>build</td>" in planned._repr_html_()
    assert repr(planned).splitlines()[0] in inside.call("plan", DAY).out


def test_an_explanation_is_that_of_the_command(inside: Project) -> None:
    want(DAY)

    explained = explain(DAY)

    assert [explanation.ref for explanation in explained.facts] == [DAY]
    assert inside.call("explain", DAY).out == f"{explained!r}\n"


def test_a_taint_names_its_refs_and_is_not_read(inside: Project) -> None:
    build(DAY)

    tainted = taint(DAY, reason="wrong currency")

    assert list(tainted.facts.refs) == [DAY]
    assert f"`databuild untaint {tainted.facts.taint_id}` takes it back." in repr(tainted)
    assert list(read(DAY, format="pandas", allow_tainted=True)["amount"]) == [1.5, 2.5]


def test_refused_questions_raise_typed_errors(inside: Project) -> None:
    with pytest.raises(UnknownAsset):
        plan("order@2024-01-30")
    build("revenue_of_january")
    with pytest.raises(NothingToTaint):
        taint(DAY, reason="wrong")
