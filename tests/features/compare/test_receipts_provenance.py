"""A receipt is enough to build an instance again and compare it (rule 4.6)."""

import json
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import dagster as dg
import pandas as pd
import pytest
from click.testing import CliRunner

from databuild_dagster import databuild_asset
from databuild_dagster.bindings.adapter.run_tags import REBUILD_TAG
from databuild_dagster.bindings.reading.spark_resource import SPARK_CONFIG_TAG
from databuild_dagster.cli.main import cli
from tests.bindings.conftest import Site

Deploy = Callable[..., Site]

#: What the source of this test has at the moment.
FOUND: dict[str, int] = {}


class Scaling(dg.Config):
    factor: int = 1


class Api(dg.ConfigurableResource):  # type: ignore[type-arg]
    token: str


@databuild_asset
def numbers() -> pd.DataFrame:
    return pd.DataFrame({"n": [FOUND["n"]]})


@databuild_asset
def scaled(numbers: pd.DataFrame, config: Scaling) -> pd.DataFrame:
    return pd.DataFrame({"n": numbers["n"] * config.factor})


@databuild_asset
def asked(api: Api) -> pd.DataFrame:
    return pd.DataFrame({"letters": [len(api.token)]})


@pytest.fixture
def ask(instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.setenv("DAGSTER_HOME", instance.root_directory)

    def ask_(*arguments: str) -> Any:
        done = CliRunner().invoke(cli, [*arguments, "--json"], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    return ask_


def made_of(receipt: Any) -> dict[str, Any]:
    """The entry of each ref in it."""
    return {instance["ref"]: instance for instance in receipt["instances"]}


def test_a_receipt_is_enough_to_build_the_same_rows_again(deploy: Deploy, ask: Callable[..., Any]) -> None:
    """Rule 4.6: after the config is forgotten, and the input is another one."""
    site = deploy(numbers, scaled)
    FOUND["n"] = 6
    site.launch(["numbers"])
    site.launch(["scaled"], run_config={"ops": {"scaled": {"config": {"factor": 7}}}})
    first, receipt = site.rows("scaled"), ask("show", "--full", "scaled")
    FOUND["n"] = 100
    site.launch(["numbers", "scaled"], tags={REBUILD_TAG: "true"})
    assert first == [{"n": 42}]
    assert site.rows("scaled") == [{"n": 100}]

    made = made_of(receipt)
    for uuid in made["scaled"]["inputs"]:
        (ref,) = [name for name, instance in made.items() if instance["uuid"] == uuid]
        ask("revert", ref, "--to", uuid)
    site.launch(["scaled"], run_config=made["scaled"]["config"], tags={REBUILD_TAG: "true"} | made["scaled"]["tags"])

    again = made_of(ask("show", "--full", "scaled"))
    same = ("code", "code_version", "config", "tags", "versions", "inputs", "schema", "rows", "job")
    assert site.rows("scaled") == first
    assert again["scaled"]["uuid"] != made["scaled"]["uuid"]
    assert {name: again["scaled"][name] for name in same} == {name: made["scaled"][name] for name in same}
    assert [file["checksum"] for file in again["scaled"]["files"]] == [
        file["checksum"] for file in made["scaled"]["files"]
    ]


def test_a_receipt_names_the_code_the_config_and_the_libraries(deploy: Deploy, ask: Callable[..., Any]) -> None:
    """Rule 4.6"""
    site = deploy(numbers, scaled)
    FOUND["n"] = 6
    config = {"ops": {"scaled": {"config": {"factor": 7}}}}
    settings = json.dumps({"spark.sql.shuffle.partitions": "3"})
    site.launch(["numbers", "scaled"], run_config=config, tags={SPARK_CONFIG_TAG: settings})

    made = made_of(ask("show", "--full", "scaled"))

    assert made["scaled"]["config"] == config
    assert made["numbers"]["config"] == {}
    assert made["scaled"]["tags"] == {SPARK_CONFIG_TAG: settings}
    assert made["scaled"]["dagster_run_id"] == site.runs[-1].run_id
    assert made["scaled"]["code"].startswith("tree-1:")
    assert made["scaled"]["code"] != made["numbers"]["code"]
    assert (
        made["scaled"]["versions"] | {"dagster": version("dagster"), "pyspark": version("pyspark")}
        == (made["scaled"]["versions"])
    )
    assert {"python", "databuild_dagster"} <= made["scaled"]["versions"].keys()


def test_a_secret_that_the_environment_holds_is_not_written_into_the_log(
    deploy: Deploy, ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_TOKEN", "hush-hush")
    site = deploy(asked, resources={"api": Api(token="none")})
    site.launch(["asked"], run_config={"resources": {"api": {"config": {"token": {"env": "API_TOKEN"}}}}})

    made = made_of(ask("show", "--full", "asked"))

    assert site.rows("asked") == [{"letters": len("hush-hush")}]
    assert made["asked"]["config"] == {"resources": {"api": {"config": {"token": {"env": "API_TOKEN"}}}}}
    assert "hush-hush" not in str(site.engine.queries.events.raw())
