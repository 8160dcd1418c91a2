"""`build --fresh --verify`: a sample of what would come back is built a second time, and its rows are compared (rule 4.9)."""

import re
from typing import Any

import pytest

from databuild_dagster.bindings.registry.instance import engine_for, open_instance
from databuild_dagster.model.commands import Returnable, ReturnInstances
from databuild_dagster.model.refs import Ref
from tests.support.project import Project

#: `honest` and `lying` say that their rows follow from `orders`.
DEFINITIONS = """
import random
import pandas as pd
from databuild_dagster import build_definitions, databuild_asset

@databuild_asset
def orders() -> pd.DataFrame:
    return pd.DataFrame({"amount": [1, 2]})

@databuild_asset(deterministic=True)
def honest(orders: pd.DataFrame) -> pd.DataFrame:
    return orders[["amount"]] * 2

@databuild_asset(deterministic=True)
def lying(orders: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"amount": [random.random() * 2]})

defs = build_definitions([orders, honest, lying])
"""


def uuid(project: Project, ref: str) -> str:
    found: str = project.ask("show", ref)["canonical"]["uuid"]
    return found


def edited_back(project: Project, *refs: str) -> str:
    """The first instance of the first ref; the code of each was edited, built and edited back."""
    project.define(DEFINITIONS)
    project.build(*refs)
    first = uuid(project, refs[0])
    project.define(DEFINITIONS.replace("* 2", "* 3"))
    project.build(*refs, "--fresh")
    project.define(DEFINITIONS)
    return first


def test_a_function_of_inputs_alone_has_equal_rows_and_its_second_build_is_live(project: Project) -> None:
    first = edited_back(project, "honest")

    done = project.call("build", "honest", "--fresh", "--verify", "0.01")

    assert (done.code, uuid(project, "honest") != first) == (0, True), done
    assert "1 ref built a second time: 1 with equal rows." in done.out
    assert project.ask("read", "honest") == [{"amount": 2}, {"amount": 4}]
    assert project.is_sound()


def test_a_function_of_chance_ends_a_build_with_exit_code_1_until_it_is_repaired(project: Project) -> None:
    first = edited_back(project, "lying")

    done = project.call("build", "lying", "--fresh", "--verify", "1", "--json")

    second = uuid(project, "lying")
    assert (done.code, done.json["refs"], done.json["job_runs"]["succeeded"]) == (1, {"live": 1, "failed": 0}, 1)
    compared = {"ref": "lying", "first": first, "second": second, "outcome": "different", "why": None}
    assert (done.json["verified"], done.json["error"]["type"]) == ([compared], "NotDeterministic")
    assert done.json["error"]["message"] == (
        f"The deterministic=True of 'lying' is wrong: lying has other rows in instance {second} than in {first}, "
        "of equal code and inputs."
    )

    again = project.call("build", "lying", "--fresh", "--verify", "1")
    assert again.code == 1, "the second build stands"
    assert "1 ref built a second time: 1 with other rows." in again.out
    (typed,) = re.findall("`databuild (diff .+?)`", again.out)
    assert (project.call(*typed.split()).code, uuid(project, "lying")) == (0, second)

    project.define(DEFINITIONS.replace("(deterministic=True)\ndef lying", "\ndef lying"))
    assert project.build("lying", "--fresh", "--verify", "1")["verified"] == []


def test_a_repeated_command_compares_what_the_interrupted_one_has_begun(project: Project) -> None:
    """One ref was in the sample then, so that none has to be."""
    edited_back(project, "honest", "lying")
    assert project.call("want", "create", "honest", "lying", "--fresh", "-f", "definitions.py").code == 0
    with open_instance(project.home) as instance:
        asked = Returnable(Ref("honest"), (Ref("orders"),))
        assert engine_for(instance).handle(ReturnInstances(refs=(asked,), verify=1.0)).events

    built = project.build("honest", "lying", "--fresh", "--verify", "1e-9")

    assert (built["returned"], built["job_runs"]["succeeded"]) == (1, 1)
    assert [(compared["ref"], compared["outcome"]) for compared in built["verified"]] == [("honest", "equal")]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--verify", "0.5"], "add --fresh"),
        (["--fresh", "--rebuild", "--verify", "0.5"], "leave out --rebuild"),
        (["--fresh", "--verify", "0"], "above 0 and at most 1"),
        (["--fresh", "--verify", "2"], "above 0 and at most 1"),
        (["--fresh", "--verify", "nan"], "above 0 and at most 1"),
        (["--fresh", "--verify", "abc"], "'abc' is not a valid"),
    ],
)
def test_a_bad_part_is_refused_before_anything_is_recorded(project: Project, arguments: list[str], words: str) -> None:
    with project.recording_nothing():
        done = project.call("build", "orders", *arguments, "--json")

    error: dict[str, Any] = done.json["error"]
    assert (done.code, words in error["message"]) == (2, True), error
