"""Each rule of the report on a project, on the smallest source that shows it."""

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import dagster as dg
import pytest

from databuild_dagster import InvalidAsset, databuild_asset, databuild_multi_asset
from databuild_dagster.bindings.authoring.dagster_options import REFUSED, REFUSED_OF_MULTI
from databuild_dagster.bindings.building.outputs import REFUSED_PARTS
from databuild_dagster.bindings.declare.build_context import INSTEAD, BuildContext
from databuild_dagster.features.migrate.findings import Action, AssetReport, Finding, ProjectReport, Verdict
from databuild_dagster.features.migrate.review import review_project

IMPORTS = """\
import dagster as dg
import pandas as pd
import polars as pl
import pyspark.sql.functions as F
from dagster import Output
from dagster_pyspark import LazyPySparkResource, PySparkResource
from pyspark.sql import DataFrame, SparkSession
"""
CHANGE, REMOVE, DECIDE, NOTE = Action.CHANGE, Action.REMOVE, Action.DECIDE, Action.NOTE


def reviewed(folder: Path, text: str) -> ProjectReport:
    (folder / "project.py").write_text(IMPORTS + text)
    return review_project(folder)


def the_asset(folder: Path, text: str) -> AssetReport:
    """The first asset of a text."""
    return reviewed(folder, text).assets[0]


def advice(findings: tuple[Finding, ...]) -> list[tuple[Action, str, str]]:
    """Without the decorator, which every asset has."""
    return [
        (finding.action, finding.found, finding.write)
        for finding in findings
        if not finding.write.startswith("@databuild_")
    ]


BECOMES, STAYS, NEEDS_DECISION = Verdict.BECOMES, Verdict.STAYS, Verdict.DECIDE


class Row(NamedTuple):
    """A function, what becomes of its asset, and the beginning of what is written for it."""

    text: str
    verdict: Verdict = BECOMES
    advice: Sequence[tuple[Action, str, str]] = ()


PARAMETERS = {
    "a frame": Row("def f(a: DataFrame) -> DataFrame: return a"),
    "a frame as text": Row("def f(a: 'pd.DataFrame') -> 'pd.DataFrame': return a"),
    "an Arrow table by its module": Row("def f(a: pl.DataFrame) -> pl.DataFrame: return a.with_columns(x=1)"),
    "Dagster's context": Row("def f(context: dg.AssetExecutionContext) -> DataFrame: return a"),
    "a context without annotation": Row("def f(context) -> DataFrame: return a"),
    "a context of another name": Row(
        "def f(_context) -> DataFrame: return a", BECOMES, [(CHANGE, "_context", "_context: BuildContext")]
    ),
    "a session": Row("def f(spark: SparkSession): return spark.table('x')"),
    "a resource of dagster-pyspark": Row("def f(pyspark: PySparkResource): return pyspark.spark_session.range(3)"),
    "no annotation, used as pandas": Row(
        "def f(a) -> pd.DataFrame: return a.sort_values('x')", BECOMES, [(CHANGE, "a", "a: pd.DataFrame")]
    ),
    "no annotation, used as Spark": Row(
        "def f(a) -> DataFrame: return a.withColumn('x', F.lit(1))", BECOMES, [(CHANGE, "a", "a: DataFrame")]
    ),
    "no annotation, no telling use": Row(
        "def f(a) -> DataFrame: return a.filter('x')", NEEDS_DECISION, [(DECIDE, "a", "annotate it with a frame of")]
    ),
    "an optional frame": Row(
        "def f(a: DataFrame | None) -> DataFrame: return a", BECOMES, [(CHANGE, "a: DataFrame | None", "a: DataFrame")]
    ),
    "a lazy frame": Row(
        "def f(a: pl.LazyFrame) -> pl.DataFrame: return a.collect()",
        BECOMES,
        [(CHANGE, "a: pl.LazyFrame", "a: pl.DataFrame, and a.lazy() in the function")],
    ),
    "a text": Row("def f(a: str) -> DataFrame: return a", STAYS),
    "a class of the project": Row("class Model: ...\n@dg.asset\ndef f(a: Model) -> DataFrame: return a", STAYS),
    "a client of Pipes": Row(
        "def f(context, pipes: dg.PipesSubprocessClient): return pipes.run(context=context).get_results()", STAYS
    ),
    "a resource of the project": Row(
        "class Base(dg.ConfigurableResource): ...\nclass Shop(Base): ...\n@dg.asset\ndef f(shop: Shop) -> DataFrame: return shop.rows()"
    ),
    "a resource that is none of Dagster's": Row(
        "class Shop: ...\n@dg.asset\ndef f(shop: dg.ResourceParam[Shop]) -> DataFrame: return shop.rows()",
        NEEDS_DECISION,
        [(DECIDE, "shop: dg.ResourceParam[Shop]", "annotate it with")],
    ),
    "a configuration of another name": Row(
        "class Settings(dg.Config): ...\n@dg.asset\ndef f(settings: Settings) -> DataFrame: return a",
        BECOMES,
        [(CHANGE, "settings: Settings", "config: …")],
    ),
    "any number of arguments": Row(
        "def f(*rest) -> DataFrame: return a", NEEDS_DECISION, [(DECIDE, "rest", "name each upstream asset")]
    ),
    "frames by partition": Row(
        "def f(a: dict[str, pd.DataFrame]) -> pd.DataFrame: return pd.concat(a)",
        NEEDS_DECISION,
        [(DECIDE, "a: dict[str, pd.DataFrame]", "annotate it with the frame")],
    ),
}
RESULTS = {
    "None": Row("def f(a: DataFrame) -> None: a.write.parquet('x')", STAYS),
    "nothing": Row("def f(a: DataFrame): a.write.parquet('x')", STAYS),
    "a list beside a frame": Row(
        "def f(a: DataFrame):\n    if a.isEmpty():\n        return []\n    return a",
        NEEDS_DECISION,
        [(DECIDE, "return []", "return EMPTY for a partition without rows")],
    ),
    "a number": Row("def f(a: DataFrame): return a.count()", STAYS),
    "a class of a library of models": Row("from sklearn.svm import SVC\n@dg.asset\ndef g() -> SVC: ...", STAYS),
    "a result without a value": Row("def f(): return dg.MaterializeResult(metadata={})", STAYS),
    "a result around a number": Row("def f() -> Output[int]: return Output(1)", STAYS),
    "a result around a frame": Row("def f() -> Output[pd.DataFrame]: return Output(pd.DataFrame())"),
    "None beside a frame": Row(
        "def f(a: DataFrame):\n    if a.isEmpty():\n        return None\n    return a",
        BECOMES,
        [(CHANGE, "return None", "return EMPTY")],
    ),
    "a frame of a helper": Row("def f(): return helper()\ndef helper() -> pd.DataFrame: ..."),
    "a chain of pandas": Row("def f(a: pd.DataFrame): return a.groupby('x')['y'].sum().reset_index()"),
    "a column": Row(
        "def f(a: pd.DataFrame): return a['x']",
        BECOMES,
        [(CHANGE, "return a['x']", "return the frame, a['x'].to_frame()")],
    ),
    "unknown": Row("def f(a: DataFrame): return elsewhere(a)", NEEDS_DECISION),
    "one of two kinds": Row(
        "def f(a: pd.DataFrame):\n    b = a\n    if len(a):\n        b = 3\n    return b", NEEDS_DECISION
    ),
    "any": Row(
        "from typing import Any\n@dg.asset\ndef f() -> Any: return pd.DataFrame()",
        BECOMES,
        [(CHANGE, "-> Any", "-> pd.DataFrame")],
    ),
    "one yield": Row(
        "def f(a: DataFrame):\n    yield Output(a.limit(1))",
        BECOMES,
        [(CHANGE, "yield Output(a.limit(1))", "return Output(a.limit(1))")],
    ),
    "several yields": Row(
        "def f(a: DataFrame):\n    yield Output(a)\n    yield dg.AssetCheckResult(passed=True)", NEEDS_DECISION
    ),
    "yields without values": Row("def f():\n    yield dg.MaterializeResult()", STAYS),
    "async": Row("async def f(a: DataFrame) -> DataFrame: return a", BECOMES, [(CHANGE, "async def f", "def")]),
    "async that awaits": Row(
        "async def f() -> DataFrame: return await rows()", NEEDS_DECISION, [(CHANGE, "async def f", "def")]
    ),
}
SPARK = {
    "a session made by hand": Row(
        "def f():\n    spark = SparkSession.builder.appName('x').getOrCreate()\n    return spark.range(3)",
        BECOMES,
        [
            (CHANGE, "def f(…)", "the function with a further parameter, `spark: SparkSession`"),
            (REMOVE, "spark = SparkSession.builder.appName('x').getOrCreate()", ""),
        ],
    ),
    "a session of a helper": Row(
        "def f():\n    return session().range(3)\ndef session(): return SparkSession.builder.getOrCreate()",
        BECOMES,
        [
            (CHANGE, "def f(…)", "the function with a further parameter, `spark: SparkSession`"),
            (CHANGE, "session()", "spark"),
        ],
    ),
    "a session of a required resource": Row(
        "(required_resource_keys={'pyspark'})\ndef f(context, spark: SparkSession):\n"
        "    return context.resources.pyspark.spark_session.range(3)",
        BECOMES,
        [
            (REMOVE, "required_resource_keys={'pyspark'}", "the keys without"),
            (CHANGE, "context.resources.pyspark.spark_session", "spark"),
        ],
    ),
    "a step launcher": Row(
        "(required_resource_keys={'pyspark_step_launcher'})\ndef f(a: DataFrame): return a",
        NEEDS_DECISION,
        [(DECIDE, "required_resource_keys={'pyspark_step_launcher'}", "the Spark of build_definitions(spark=…)")],
    ),
    "what only a JVM has": Row(
        "def f(a: DataFrame):\n    n = a.rdd.getNumPartitions()\n    return a.limit(n)",
        NEEDS_DECISION,
        [(DECIDE, "a.rdd", "the mode shared has no JVM")],
    ),
}


@pytest.mark.parametrize(
    "row", [pytest.param(row, id=name) for name, row in {**PARAMETERS, **RESULTS, **SPARK}.items()]
)
def test_a_function_gets_the_verdict_and_the_advice_of_its_row(row: Row, tmp_path: Path) -> None:
    report = the_asset(tmp_path, decorated(row))

    found = advice(report.findings)
    assert (report.verdict, len(found)) == (row.verdict, len(row.advice)), report
    for (action, text, write), expected in zip(found, row.advice, strict=True):
        assert (action, text, write[: len(expected[2])]) == expected
    assert bool(report.why) == (
        row.verdict is STAYS or (row.verdict is NEEDS_DECISION and not any(a[0] is DECIDE for a in row.advice))
    )


def decorated(row: Row) -> str:
    """The text with the decorator of its asset."""
    return row.text if "@dg.asset" in row.text else f"@dg.asset{'' if row.text[0] == '(' else chr(10)}{row.text}"


def is_taken(row: Row) -> bool:
    """Whether the package's own decorator takes the function."""
    text = f"{IMPORTS}from databuild_dagster import databuild_asset\n{decorated(row)}"

    try:
        exec(text.replace("@dg.asset", "@databuild_asset"), {"__name__": "project"})
    except InvalidAsset:
        return False
    return True


#: Results for which the report changes nothing.
KEPT_RESULTS = {name: row for name, row in {**RESULTS, **SPARK}.items() if row.verdict is BECOMES and not row.advice}


@pytest.mark.parametrize("row", [pytest.param(row, id=name) for name, row in {**PARAMETERS, **KEPT_RESULTS}.items()])
def test_the_decorator_takes_a_function_for_which_the_report_changes_nothing(row: Row) -> None:
    assert is_taken(row) == (row.verdict is BECOMES and not row.advice)


@pytest.mark.parametrize(
    ("theirs", "ours", "refused"),
    [(dg.asset, databuild_asset, REFUSED), (dg.multi_asset, databuild_multi_asset, REFUSED_OF_MULTI)],
    ids=["asset", "multi_asset"],
)
def test_each_argument_of_dagsters_decorator_stays_or_goes_as_the_tables_have_it(
    theirs: Any, ours: Any, refused: dict[str, str], tmp_path: Path
) -> None:
    known = inspect.signature(ours).parameters
    names = {*inspect.signature(theirs).parameters, *refused} - {"compute_fn", "kwargs", "ins", "outs"}
    arguments = "".join(f"    {name}=SOMETHING,\n" for name in names)
    returns = "{'x': a}" if ours is databuild_multi_asset else "a"

    report = the_asset(tmp_path, f"@dg.{theirs.__name__}(\n{arguments})\ndef f(a: DataFrame): return {returns}")

    found = {finding.found.partition("=")[0]: finding for finding in report.findings}
    assert {name for name in names if name in found} == {name for name in names if name not in known}
    for name, instead in refused.items():
        assert instead in found[name].why
        assert found[name].action in (REMOVE, CHANGE)


def test_each_member_of_the_context_that_a_build_lacks_gets_its_replacement(tmp_path: Path) -> None:
    members = [name for name in dir(dg.AssetExecutionContext) if name[0] != "_"]
    lines = "".join(f"    context.{name}\n" for name in members)

    report = the_asset(tmp_path, f"@dg.asset\ndef f(context) -> DataFrame:\n{lines}    return a")

    found = {finding.found.partition(".")[2]: finding.write for finding in report.findings if "." in finding.found[:9]}
    found.pop("asset", None)
    assert set(found) == {name for name in members if not hasattr(BuildContext, name)}
    assert {name: write for name, write in found.items() if name in INSTEAD} == INSTEAD
    assert found["retry_number"] == "context.dagster_context.retry_number"


@pytest.mark.parametrize("part", REFUSED_PARTS)
def test_a_part_of_a_result_that_means_nothing_is_removed(part: str, tmp_path: Path) -> None:
    report = the_asset(tmp_path, f"@dg.asset\ndef f(a: DataFrame): return dg.MaterializeResult(value=a, {part}=x)")

    (_, given, _), *rest = advice(report.findings)
    assert (given, rest) == (f"{part}=x", [])
    assert REFUSED_PARTS[part] in report.findings[-1].why


def test_a_multi_asset_gets_specs_a_dict_and_its_readers_annotations(tmp_path: Path) -> None:
    report = reviewed(
        tmp_path,
        """
@dg.multi_asset(outs={"low": dg.AssetOut(io_manager_key="x", group_name="g"), "high": dg.AssetOut(key_prefix=["a"])})
def split(a: DataFrame) -> tuple[DataFrame, DataFrame]:
    return a.filter("n < 1"), a.filter("n > 1")

@dg.asset
def reader(low) -> DataFrame:
    return low
""",
    )

    split, reader = report.assets
    assert split.verdict is Verdict.BECOMES_MULTI
    assert [finding.write for finding in split.findings] == [
        "@databuild_multi_asset",
        'dg.AssetSpec("low", group_name="g")',
        'dg.AssetSpec(["a", "high"])',
        "-> dict[str, DataFrame]",
        'return {"low": a.filter("n < 1"), "high": a.filter("n > 1")}',
    ]
    assert advice(reader.findings) == [(CHANGE, "low", "low: DataFrame")]


@pytest.mark.parametrize(
    ("body", "stores"),
    [
        (
            "a.write.mode('append').parquet('x')",
            "It returns nothing: it stores its data itself in line 10; to move it, return",
        ),
        ("spark.read.parquet('x').show()", "It returns nothing: it stores its data itself, or has none."),
    ],
)
def test_the_place_where_a_function_stores_its_data_is_named(body: str, stores: str, tmp_path: Path) -> None:
    report = the_asset(tmp_path, f"@dg.asset\ndef f(a: DataFrame, spark: SparkSession):\n    {body}\n")

    assert report.why[0].startswith(stores)


def test_an_asset_of_a_factory_says_that_its_names_are_unknown(tmp_path: Path) -> None:
    text = "def factory(name):\n    @dg.asset(name=name)\n    def made(a: DataFrame) -> DataFrame: return a\n    return made"

    report = the_asset(tmp_path, text)

    assert report.verdict is BECOMES
    assert report.why == (
        "The function factory makes any number of such assets, whose names the source does not show.",
    )


def test_an_own_decorator_and_a_call_of_asset_need_a_decision(tmp_path: Path) -> None:
    report = reviewed(
        tmp_path,
        "def ours(f): return dg.asset(f, group_name='x')\n\n@ours\ndef a() -> DataFrame: ...\n\nb = dg.asset(name='b')(a)\n",
    )

    found = {asset.name: asset for asset in report.assets}
    assert {asset.verdict for asset in found.values()} == {NEEDS_DECISION}
    assert "own decorator ours (project.py:8) makes it" in found["a"].why[0]
    assert found["dg.asset(name='b')"].why[0].startswith("A call makes it: write the decorator")


def test_assets_of_graphs_and_of_other_tools_stay(tmp_path: Path) -> None:
    text = "from dagster_dbt import dbt_assets\n@dbt_assets(manifest=m)\ndef models(context): ...\n@dg.graph_asset\ndef g(): return op()\n"

    report = reviewed(tmp_path, text)

    assert {asset.name: asset.verdict for asset in report.assets} == {"models": STAYS, "g": STAYS}
    assert all(asset.why for asset in report.assets)
    assert report.is_done


def test_plain_readers_of_a_databuild_asset_get_the_annotation_they_need(tmp_path: Path) -> None:
    report = reviewed(
        tmp_path,
        """
@dg.asset
def orders() -> pd.DataFrame:
    return pd.DataFrame()

@dg.asset(ins={"rows": dg.AssetIn("orders", input_manager_key="files")})
def printed(rows) -> None:
    print(rows)

@dg.asset_check(asset=orders)
def there(orders): ...
""",
    )

    printed = next(asset for asset in report.assets if asset.name == "printed")
    assert printed.verdict is STAYS
    assert advice(printed.findings) == [
        (REMOVE, 'input_manager_key="files"', ""),
        (CHANGE, "rows", "rows: pd.DataFrame"),
    ]
    assert (CHANGE, "orders", "orders: pd.DataFrame") in advice(report.others)


DEFINITIONS = """
@dg.asset
def orders() -> pd.DataFrame:
    return pd.DataFrame()

class Files(dg.ConfigurableIOManager): ...

job = dg.define_asset_job("all", "*", op_retry_policy=dg.RetryPolicy())
defs = dg.Definitions(
    assets=[orders],
    jobs=[job],
    executor=dg.in_process_executor,
    resources={"files": Files(), "spark": LazyPySparkResource(spark_config={}), "other": object()},
)
"""


def test_definitions_become_build_definitions_and_lose_what_nothing_uses(tmp_path: Path) -> None:
    report = reviewed(tmp_path, DEFINITIONS)

    assert advice(report.others) == [
        (Action.ADD, "", "from databuild_dagster import build_definitions, databuild_asset"),
        (REMOVE, "op_retry_policy=dg.RetryPolicy()", "remove it"),
        (CHANGE, "dg.Definitions", "build_definitions"),
        (REMOVE, "executor=dg.in_process_executor", "remove it"),
        (REMOVE, '"files": Files()', "remove it"),
        (
            CHANGE,
            '"spark": LazyPySparkResource(spark_config={})',
            "spark=LazyPySparkResource(spark_config={}), an argument of build_definitions",
        ),
    ]
    assert "Definitions.merge" in report.others[3].why


def test_an_io_manager_and_a_session_that_plain_assets_use_stay(tmp_path: Path) -> None:
    plain = "\n@dg.asset(io_manager_key='files')\ndef model(spark: PySparkResource) -> dict: ...\n"

    report = reviewed(tmp_path, DEFINITIONS + plain)

    found = [(finding.action, finding.found) for finding in report.others if "Files" in finding.found]
    assert found == []
    assert (Action.ADD, '"spark": LazyPySparkResource(spark_config={})') in [
        (finding.action, finding.found) for finding in report.others
    ]
    assert (
        NOTE,
        "op_retry_policy=dg.RetryPolicy()",
        "it repeats plain assets alone, and build_definitions warns of the others",
    ) in advice(report.others)


@pytest.mark.parametrize(
    ("result", "n_changed", "shared"),
    [("dict", 1, []), ("pd.DataFrame", 2, [(DECIDE, "dg.Definitions.merge(defs, others)")])],
    ids=["plain assets alone", "databuild assets"],
)
def test_several_definitions_share_a_location_if_all_have_databuild_assets(
    result: str, n_changed: int, shared: list[tuple[Action, str]], tmp_path: Path
) -> None:
    more = f"""
@dg.asset
def more() -> {result}: ...
others = dg.Definitions(assets=[more])
all = dg.Definitions.merge(defs, others)
"""

    report = reviewed(tmp_path, DEFINITIONS + more)

    changed = [finding.found for finding in report.others if finding.write == "build_definitions"]
    assert changed == ["dg.Definitions"] * n_changed
    found = [(finding.action, finding.found) for finding in report.others if "SharedLocation" in finding.write]
    assert found == shared


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("@F.udf('int')\ndef f(x): ...", "IntegerType()"),
        ("f = F.udf(lambda x: x, 'array<int>')", "ArrayType(...)"),
        ("@F.pandas_udf(returnType='double')\ndef f(x): ...", "DoubleType()"),
        ("from pyspark.sql.functions import udf\n@udf(returnType='string')\ndef f(x): ...", "StringType()"),
    ],
)
def test_a_return_type_as_text_at_the_top_of_a_module_becomes_an_object(
    text: str, instead: str, tmp_path: Path
) -> None:
    report = reviewed(tmp_path, text)

    assert [finding.write for finding in report.others if finding.action is CHANGE] == [instead]


@pytest.mark.parametrize(
    "text",
    ["@F.udf(IntegerType())\ndef f(x): ...", "def g():\n    @F.udf('int')\n    def f(x): ...", "c = F.col('x')"],
)
def test_other_functions_for_spark_are_left_alone(text: str, tmp_path: Path) -> None:
    assert reviewed(tmp_path, text).is_done


def test_a_session_that_a_module_opens_needs_a_decision(tmp_path: Path) -> None:
    report = reviewed(tmp_path, "spark = SparkSession.builder.getOrCreate()\n")

    assert [(finding.action, finding.line) for finding in report.others] == [(DECIDE, 8)]


def test_a_helper_that_gets_the_context_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "helpers.py").write_text("def note(context, text):\n    context.log.info(context.run_tags)\n")
    text = "from helpers import note\n" + "".join(
        f"@dg.asset\ndef {name}(context) -> DataFrame:\n    note(context, 'x')\n    return a\n" for name in "ab"
    )

    report = reviewed(tmp_path, text)

    changes = [finding for finding in report.others if finding.action is CHANGE]
    found = [(change.path, change.line, change.found, change.write) for change in changes]
    assert found == [("helpers.py", 2, "context.run_tags", "context.run.tags")]


def test_a_moved_project_has_nothing_left_to_change(tmp_path: Path) -> None:
    report = reviewed(
        tmp_path,
        """
from databuild_dagster import ByFile, Delta, build_definitions, databuild_asset, databuild_multi_asset

@databuild_asset(partitions_def=daily, publish=Delta(), sample=True, parts=ByFile("raw", 2))
def orders(context) -> pd.DataFrame:
    return elsewhere(context)

@databuild_multi_asset(outs={"refunds": dg.AssetSpec("refunds")}, publish=Delta())
def several() -> dict[str, pd.DataFrame]:
    return {}

defs = build_definitions([orders, several], warehouse="x", threads=2, alerts=(), operations=(), publish=Delta())
""",
    )

    assert [asset.verdict for asset in report.assets] == [Verdict.IS, Verdict.IS]
    assert report.is_done
    assert report.others == ()


@pytest.mark.parametrize("option", ["options=1", "retry_policy=x"])
def test_an_option_with_which_a_databuild_asset_would_not_load_is_removed(option: str, tmp_path: Path) -> None:
    text = f"from databuild_dagster import databuild_asset as d\n@d({option})\ndef orders() -> pd.DataFrame: ...\n"

    report = reviewed(tmp_path, text)

    assert [(asset.name, advice(asset.findings)) for asset in report.assets] == [
        ("orders", [(REMOVE, option, "remove it")])
    ]
    assert not report.is_done


def test_names_are_followed_through_the_modules_of_a_package(tmp_path: Path) -> None:
    package = tmp_path / "src" / "shop"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "names.py").write_text("from dagster import *\nfrom pandas import DataFrame as Frame\nmade = asset\n")
    (package / "assets.py").write_text(
        "from __future__ import annotations\nfrom .names import Frame\nfrom shop.names import asset as a\n"
        "@a(io_manager_key='x')\ndef orders() -> Frame: ...\n"
    )

    report = review_project(tmp_path)

    assert [(asset.name, asset.path, asset.verdict) for asset in report.assets] == [
        ("orders", "src/shop/assets.py", BECOMES)
    ]


def test_an_import_for_type_checkers_alone_is_moved(tmp_path: Path) -> None:
    text = (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pandas\n"
        "@dg.asset\ndef f() -> 'pandas.DataFrame': ...\n@dg.asset\ndef g(a: pandas.DataFrame) -> DataFrame: return b\n"
    )

    found = next(asset for asset in reviewed(tmp_path, text).assets if asset.name == "g").findings

    assert [finding.write for finding in found if "TYPE_CHECKING" in finding.write] == [
        "pandas, with its import outside of `if TYPE_CHECKING:`"
    ]


def test_tests_of_a_project_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_x.py").write_text(IMPORTS + "@dg.asset\ndef f() -> DataFrame: ...")

    report = reviewed(tmp_path, "")

    assert (report.n_files, report.n_tests, report.assets) == (1, 1, ())


def test_an_expression_that_is_nested_too_deeply_is_left_to_a_person(tmp_path: Path) -> None:
    report = the_asset(tmp_path, f"@dg.asset\ndef f(a: pd.DataFrame): return a{'.foo()' * 900}")

    assert report.verdict is NEEDS_DECISION
