"""`databuild build --at-once N`: several launches of one build run at a time (rule 8.9, decision 55)."""

import os
import re
import signal
from pathlib import Path

import pytest

from databuild_dagster.bindings.registry.instance import open_instance
from databuild_dagster.spark.session import ui_urls
from tests.support.endless import ENDLESS
from tests.support.project import MAX_SECONDS, PLAIN_DAGSTER_YAML, Project, wait_for_line, wait_until
from tests.support.spark_ui import nothing_runs, spark_jobs

from .sources import of_held, of_pandas, of_spark

#: Two assets that need nothing of each other and wait for each other, and one that needs both.
MEETING = of_pandas("""
import threading

meeting = threading.Barrier(2)

def meet(name):
    print(f"{name} is here")
    meeting.wait(timeout=250)
    return pd.DataFrame({"n": [1]})

@databuild_asset
def left() -> pd.DataFrame:
    return meet("left")

@databuild_asset
def right() -> pd.DataFrame:
    return meet("right")

@databuild_asset
def both(left: pd.DataFrame, right: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([left, right])

defs = build_definitions([left, right, both])
""")

#: Two assets of Spark alone whose views have the same name.
VIEWS = of_spark("""
import threading

meeting = threading.Barrier(2)

def asset_called(name):
    @databuild_asset(name=name)
    def viewed(spark: SparkSession) -> DataFrame:
        spark.sql(f"select '{{name}}' as who").createOrReplaceTempView("rows")
        meeting.wait(timeout=250)
        return spark.table("rows")
    return viewed

defs = build_definitions(
    [asset_called(name) for name in ("left", "right")], spark=DatabuildSpark(home={spark_home!r})
)
""")

#: Two assets of Spark that never end by themselves.
ENDLESS_PAIR = of_spark("""
def asset_called(name):
    @databuild_asset(name=name)
    def endless(spark: SparkSession) -> DataFrame:
        return spark.sql({endless!r})
    return endless

defs = build_definitions(
    [asset_called(name) for name in ("left", "right")], spark=DatabuildSpark(home={spark_home!r})
)
""")

#: Three assets that need nothing of each other; each is held by a file.
HELD = of_held("""

def asset_called(name):
    @databuild_asset(name=name)
    def held() -> pd.DataFrame:
        hold(name)
        if (HERE / f"fail-{name}").exists():
            raise ValueError(f"no {name}")
        return pd.DataFrame({"n": [1]})
    return held

defs = build_definitions([asset_called(name) for name in ("left", "right", "later")])
""")


def statuses(project: Project) -> list[str]:
    """Those of all Dagster runs, in the order of the alphabet."""
    with open_instance(project.home) as instance:
        return sorted(run.status.value for run in instance.get_runs())


def test_two_launches_run_at_the_same_time(project: Project) -> None:
    """Each function waits until the other has begun."""
    project.define(MEETING)

    done = project.call("build", "both", "--at-once", "2")

    assert done.code == 0, done
    assert re.search(r"^1 of 1 ref live in .* both 1 \(", done.out, re.MULTILINE), done
    assert statuses(project) == ["SUCCESS"] * 3
    assert project.is_sound()


def with_free_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))


def test_launches_that_may_run_beside_others_do_by_themselves(project: Project, monkeypatch) -> None:
    with_free_cores(monkeypatch)
    project.define(MEETING.replace("@databuild_asset", "@databuild_asset(concurrency=2)"))

    done = project.call("build", "both")

    assert done.code == 0, done


def test_launches_of_pandas_run_one_after_another_by_themselves(project: Project, monkeypatch) -> None:
    with_free_cores(monkeypatch)
    project.define(HELD)
    n_open = []

    def count() -> None:
        n_open.append(len(project.queries.job_runs.newest(open_only=True)))

    done = project.call_while_held("left", count, "build", "left", "right")

    assert (done.code, n_open) == (0, [1]), done


@pytest.mark.long("only a server of Spark has views")
def test_launches_beside_each_other_share_no_views(project: Project, spark_home: str, monkeypatch) -> None:
    """Each function waits until both have made their view, and reads it afterwards."""
    with_free_cores(monkeypatch)
    project.define(VIEWS.format(spark_home=spark_home))

    done = project.call("build", "left", "right")

    assert done.code == 0, done
    assert [project.ask("read", name) for name in ("left", "right")] == [[{"who": "left"}], [{"who": "right"}]]


def test_a_launch_that_fails_leaves_the_one_beside_it_alone(project: Project) -> None:
    """The end of a Dagster run ends the launches that its step left open, and no others."""
    project.define(HELD)
    project.fail("right")

    def right_has_ended() -> None:
        wait_until(lambda: "FAILURE" in statuses(project), "the Dagster run of right ended")

    done = project.call_while_held("left", right_has_ended, "build", "left", "right", "--at-once", "2", "--json")

    assert done.code == 1, done
    assert [(ref["ref"], ref["why"]) for ref in done.json["not_live"]] == [("right", "ValueError: no right")]
    assert project.ask("show", "left")["state"] == "Live"
    assert statuses(project) == ["FAILURE", "SUCCESS"]


def test_no_more_launches_run_than_at_once_says(project: Project) -> None:
    project.define(HELD)
    project.hold("right")
    project.hold("later")
    n_open = []

    def release_the_others() -> None:
        wait_until(lambda: len(list(project.folder.glob("held-*"))) == 2, "two of the three began")
        n_open.append(len(project.queries.job_runs.newest(open_only=True)))
        project.release("right")
        project.release("later")

    done = project.call_while_held("left", release_the_others, "build", "left", "right", "later", "--at-once", "2")

    assert (done.code, n_open) == (0, [2]), done
    assert "3 of 3 refs live" in done.out


@pytest.mark.long("Ctrl-C reaches a process")
def test_ctrl_c_ends_every_launch_and_its_dagster_run(project: Project) -> None:
    """Rules 6.10 and 15: the functions have some seconds to end."""
    project.define(HELD)
    for name in ("left", "right"):
        project.hold(name)
    process = project.start("build", "left", "right", "--at-once", "2")
    for name in ("left", "right"):
        project.wait_until_held(name)

    process.send_signal(signal.SIGINT)
    # Each launch says it.
    lines = [line for _ in ("left", "right") for line in wait_for_line(process, "Stopping")]
    for name in ("left", "right"):
        project.release(name)
    out, rest = process.communicate(timeout=MAX_SECONDS)

    err = "".join(lines) + rest
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "2 job runs canceled." in out, out
    assert project.ask("job-run", "list", "--open") == []
    assert statuses(project) == ["FAILURE"] * 2, "for Dagster, an interrupt is unexpected"
    assert project.is_sound()
    assert project.build("left", "right")["refs"] == {"live": 2, "failed": 0}


@pytest.mark.long("Ctrl-C reaches a process, and stops jobs of Spark")
def test_ctrl_c_stops_the_spark_jobs_of_every_launch(project: Project, spark_home: str) -> None:
    project.define(ENDLESS_PAIR.format(spark_home=spark_home, endless=ENDLESS))
    process = project.start("build", "left", "right", "--at-once", "2")

    def that_compute() -> list[str]:
        launches = [launch.launch_id for launch in project.queries.launches.open()]
        try:
            return [name for name in launches for url in ui_urls(spark_home) if spark_jobs(url, name, running=True)]
        except OSError:  # The UI of a server that starts.
            return []

    wait_until(lambda: len(that_compute()) == 2, "both launches compute")
    both, (url,) = that_compute(), ui_urls(spark_home)

    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=MAX_SECONDS)

    assert process.returncode == 130, err
    assert "2 job runs canceled." in out, out
    wait_until(lambda: all(nothing_runs(url, launch) for launch in both), "Spark computes neither")
    assert project.ask("job-run", "list", "--open") == []
    assert project.is_sound()


@pytest.mark.long("the output of a process is what it prints")
def test_what_assets_print_is_in_the_output_of_the_command_alone(project: Project) -> None:
    """Dagster would send the output of the whole process to a file of one run."""
    (project.home / "dagster.yaml").write_text(PLAIN_DAGSTER_YAML)
    project.define(MEETING)

    done = project.run("build", "both", "--at-once", "2", "--json")

    assert done.code == 0, done
    assert done.json["refs"] == {"live": 1, "failed": 0}
    assert "left is here" in done.err
    assert "right is here" in done.err
    assert not [path for path in Path(project.home, "storage").rglob("*.out") if path.stat().st_size]
