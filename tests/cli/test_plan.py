"""`databuild plan`: what a build would do, before it does anything (rules 8.6, 15)."""

from databuild_dagster.engine.holders import this_user
from tests.support.project import Project

from .sources import of_pandas

DAYS = ["orders@2024-01-29", "orders@2024-01-30", "orders@2024-01-31"]
JANUARY = "revenue@2024-01-01"


def graph_of(answer: "dict[str, list[dict[str, object]]]") -> list[tuple[object, ...]]:
    return [(job["job"], job["ref"], job["after"]) for job in answer["jobs"]]


def actions(answer: "dict[str, list[dict[str, object]]]") -> dict[object, object]:
    return {job["ref"]: job["action"] for job in answer["jobs"]}


def test_a_build_does_what_was_planned_and_the_graph_stays_the_same(project: Project) -> None:
    project.call("admin", "tick")
    project.build(DAYS[0])
    events = project.n_events()

    planned = project.ask("plan", JANUARY)

    assert graph_of(planned) == [*(("orders", day, []) for day in DAYS), ("revenue", JANUARY, DAYS)]
    assert actions(planned) == {DAYS[0]: "reuse", DAYS[1]: "build", DAYS[2]: "build", JANUARY: "build"}
    assert set(planned["jobs"][0]) == {"job", "ref", "action", "reason", "after"}
    assert planned["jobs"][1]["reason"] == "never built"
    assert planned["expected_seconds"] > 0
    assert planned["without_history"] == ["revenue"]
    assert project.n_events() == events, "nothing is recorded"

    built = project.build(JANUARY)
    afterwards = project.ask("plan", JANUARY)

    assert planned["launches"] == built["launches"] == 2
    assert graph_of(afterwards) == graph_of(planned)
    assert set(actions(afterwards).values()) == {"reuse"}
    assert (afterwards["launches"], afterwards["expected_seconds"]) == (0, 0)


def test_a_ref_that_is_named_twice_is_planned_once(known_project: Project) -> None:
    day = "orders@2024-01-29"

    twice, once = (known_project.ask("plan", *refs) for refs in ([day, day], [day]))

    assert twice["jobs"] == once["jobs"]
    assert len(once["jobs"]) == 1


def test_a_tree_for_people_has_a_line_for_each_job_and_the_totals(project: Project) -> None:
    project.call("admin", "tick")
    project.build(DAYS[0])
    project.call("taint", DAYS[0], "--reason", "a [bold] claim")

    done = project.call("plan", JANUARY)

    assert done.code == 0, done
    lines = done.out.splitlines()
    assert lines[0] == f"{JANUARY}: build, never built"
    assert lines[1] == "└── orders 3 partitions: 3 build"
    assert lines[2].strip() == f"build {DAYS[0]}: tainted: a [bold] claim by {this_user()}"
    assert lines[3].strip() == f"build {DAYS[1]}, {DAYS[2]}: never built"
    assert lines[4].startswith("4 refs: 4 build; 2 launches, about ")
    assert lines[4].endswith(" and no history of revenue.")


def test_inputs_with_a_filter_say_how_many_files_would_be_read(project: Project) -> None:
    """Rule 9.8"""
    project.define(
        of_pandas("""
days = dg.StaticPartitionsDefinition(["mon", "tue"])

@databuild_asset(partitions_def=days)
def orders() -> pd.DataFrame:
    return pd.DataFrame({"amount": [1, 2]})

@databuild_asset(partitions_def=days, ins={"orders": dg.AssetIn(metadata={"where": "amount > 1"})})
def large(orders: pd.DataFrame) -> pd.DataFrame:
    return orders

defs = build_definitions([orders, large], location="filtered")
""")
    )
    project.build("orders@mon")

    lines = project.call("plan", "large@mon", "large@tue").out.splitlines()
    answer = project.ask("plan", "large@mon")["reads"]

    assert lines[-2] == "large reads 1 of 1 file of orders where amount > 1, of 1 of its 2 partitions."
    assert [(entry["input"], entry["where"], entry["files"], entry["of"]) for entry in answer] == [
        ("orders", "amount > 1", 1, 1)
    ]


def test_no_code_is_loaded_for_a_plan_or_an_explanation(project: Project) -> None:
    """Rule 5.7: the store knows everything."""
    project.call("admin", "tick")
    project.define("raise SystemExit('loaded')")

    assert project.call("plan", JANUARY).code == 0
    assert project.call("explain", JANUARY).code == 0


def test_a_fresh_project_is_registered_by_the_first_question_about_it(project: Project) -> None:
    """Rule 5.7: `build` is not the only command that finds the definitions."""
    planned = project.ask("plan", JANUARY)

    assert actions(planned)[JANUARY] == "build"
    assert f"nothing has built it yet in the home {project.home}." in project.call("show", JANUARY).out
    assert project.call("explain", JANUARY).code == 0


def test_a_folder_without_definitions_says_what_registers_an_asset(project: Project) -> None:
    (project.folder / "workspace.yaml").unlink()
    (project.folder / "definitions.py").unlink()

    done = project.call("plan", JANUARY)

    assert done.code == 2
    assert "Load a code location that defines it: `databuild build` registers what it loads." in done.err
