"""`databuild operation run validate`, `build_index` and `compact`, and `databuild read --where`, as a user has them (rules 9.8, 15)."""

import pytest

from tests.support.project import Done, Project

by_spark = pytest.mark.long("only Spark evaluates rules and rewrites files")

DEFINITIONS = """
import dagster as dg
from pyspark.sql import DataFrame

from databuild_dagster import BuildContext, DatabuildSpark, build_definitions, databuild_asset

KEYS = ["mon", "tue", "wed"]


@databuild_asset(partitions_def=dg.StaticPartitionsDefinition(KEYS))
def orders(context: BuildContext) -> DataFrame:
    first = 10 * KEYS.index(context.partition_key)
    return context.spark.range(first, first + 8, 1, 4).selectExpr("id AS n", "if(id = 10, null, 'x') AS who")


defs = build_definitions([orders], location="provided", spark=DatabuildSpark(home={home!r}))
"""

RULES = """
rules:
  - not_null: who
  - unique: [n]
  - range: {column: n, low: 0, high: 26}
"""


@pytest.fixture(scope="module")
def project(shared_project: Project, spark_home: str) -> Project:
    shared_project.define(DEFINITIONS.format(home=spark_home))
    (shared_project.folder / "rules.yaml").write_text(RULES)
    shared_project.build("orders@mon", "orders@tue", "orders@wed")
    return shared_project


def operate(project: Project, *arguments: str) -> Done:
    return project.call("operation", "run", *arguments, "--local")


@by_spark
def test_rules_of_a_file_are_checked_and_shown_and_taint(project: Project) -> None:
    """Rules 15: exit 1 when a rule is broken, and stdout is only JSON"""
    shown = operate(project, "validate", "orders", "--rules", "rules.yaml")
    done = operate(project, "validate", "orders", "--rules", "rules.yaml", "--taint", "--samples", "0", "--json")
    states = {partition["ref"]: partition["state"] for partition in project.ask("partitions", "orders")}
    project.build("orders@tue", "orders@wed")

    assert shown.code == 1, shown
    table = [line.split() for line in shown.out.splitlines()]
    assert ["who", "is", "not", "null", "1", "1"] in table
    assert ["(n)", "is", "unique", "0", "0"] in table
    assert '  orders@tue  1 row:\n    {"n":10,"who":null}\n' in shown.out
    assert "24 rows in 3 partitions looked at." in shown.out
    assert "failed; 1 of 3 jobs done, 2 failed." in shown.out.splitlines()[-1]
    assert done.code == 1, done
    answer = done.json
    assert (answer["state"], answer["ok"], answer["done"], answer["total"]) == ("failed", False, 1, 3)
    assert [(rule["rule"], rule["offending"]) for rule in answer["rules"]] == [
        ("who is not null", 1),
        ("(n) is unique", 0),
        ("0 <= n <= 26", 1),
    ]
    assert [partition["ref"] for partition in answer["rules"][0]["partitions"]] == ["orders@tue"]
    assert answer["rules"][0]["samples"] == []
    assert answer["tainted"] == ["orders@tue", "orders@wed"]
    assert states == {"orders@mon": "Live", "orders@tue": "Tainted", "orders@wed": "Tainted"}
    assert project.is_sound()


@by_spark
def test_a_validation_without_broken_rules_is_exit_code_0(project: Project) -> None:
    done = operate(project, "validate", "orders", "--not-null", "n", "--expression", "n >= 0", "--json")

    assert (done.code, done.json["ok"]) == (0, True), done
    assert [rule["rule"] for rule in done.json["rules"]] == ["n is not null", "n >= 0"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("validate", "orders"), "No rule was given. Give at least one, such as --not-null COLUMN"),
        (("validate", "orders", "--rules", "nowhere.yaml"), "nowhere.yaml cannot be read as rules"),
        (("validate", "orders", "--rules", "torn.yaml"), "torn.yaml cannot be read as rules"),
        (("validate", "orders", "--rules", "other.yaml"), "other.yaml"),
        (("compact", "orders", "--target", "large"), "it is no size"),
        (("compact", "orders", "--target", "0"), "it is no size"),
    ],
)
def test_an_option_that_cannot_be_read_is_one_sentence_and_starts_nothing(
    shared_project: Project, arguments: tuple[str, ...], sentence: str
) -> None:
    (shared_project.folder / "torn.yaml").write_text("rules: [")
    (shared_project.folder / "other.yaml").write_text("- unheard: n\n")

    with shared_project.recording_nothing():
        done = operate(shared_project, *arguments)

    assert (done.code, done.out) == (2, ""), done
    assert sentence in done.err
    assert len(done.err.splitlines()) == 1, done.err


@by_spark
def test_an_index_spares_files_and_compacting_makes_them_few(project: Project) -> None:
    """Rule 9.8"""
    before = project.call("read", "orders@mon", "--where", "n = 3", "--json")
    indexed = operate(project, "build_index", "orders", "--column", "n,who", "--json")
    after = project.call("read", "orders@mon", "--where", "n = 3", "--json")
    compacted = operate(project, "compact", "orders", "--target", "64MB", "--json")
    at_last = project.call("read", "orders@mon", "--where", "n = 3", "--json")

    assert before.json == after.json == at_last.json == [{"n": 3, "who": "x"}]
    assert [done.err.strip() for done in (before, after, at_last)] == [
        "4 of 4 files read.",
        "1 of 4 files read.",
        "1 of 1 file read.",
    ]
    assert (indexed.code, indexed.json["files"], indexed.json["columns"]) == (0, 12, ["n", "who"]), indexed
    assert (compacted.code, compacted.json["files_before"], compacted.json["files_after"]) == (0, 12, 3), compacted
    assert project.ask("log", "check", "--deep") == {"ok": True, "violations": []}
