"""Every door of Dagster, end to end: however a build is started, the data is built once (rules 8); and what a Dagster in
use does to builds besides asking for them.

One deployment for all: before it starts, each asset has a partition that is live, one that has failed and one that
another Dagster run is building. Each test comes through one door and asks for some of these and for one that is missing;
a job over a range, `databuild build` and `materialize()` ask for all of them. Dagster runs cost seconds of processor each,
so the other doors ask only for what tells a person from a program (the failed one), and for what another builds. Waiting,
giving up and taking over are proved by tests/bindings/building/test_step_delegation.py.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pytest

from databuild_dagster.bindings.adapter.run_tags import OUTCOME_TAG
from databuild_dagster.model.commands import CreateWants
from databuild_dagster.model.states import InstanceState

from .conftest import MAX_SECONDS
from .doors import (
    FAILED,
    HELD,
    KEYS,
    LIVE,
    MISSING,
    OUR_COORDINATOR,
    SETTINGS,
    Deployment,
    answers_of,
    deployed,
    refs,
    spoken,
)

pytestmark = [pytest.mark.long("requests come through Dagster's own processes"), pytest.mark.timeout(600)]

#: Assets of which all of `KEYS` is true when the deployment starts.
GIVEN = ("button", "job_second", "command", "materialized", "built", "scheduled", "filled", "eager")
#: Of the Dagster runs with the tag of the crowd, those that Dagster lets run at once; the others wait in its queue.
MAX_OF_THE_CROWD = 2
N_OF_THE_CROWD = 3
#: A module that is a command.
ASSET_MATERIALIZE = ("dagster", "asset", "materialize")


SENSORS = """
{ workspaceOrError { ... on Workspace { locationEntries { locationOrLoadError { ... on RepositoryLocation {
    name repositories { name sensors { name sensorState { status } } } } } } } } }"""

BUILT, REUSED, JOINED, REFUSED = "built, live", "reused, live", "joined, live", "refused, refused"


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """With Dagster's own run queue; with `DATABUILD_COORDINATOR=1` in the environment, behind ours.

    Then a run gets the same answers (rule 8.1): `DATABUILD_COORDINATOR=1 make test ARGS=tests/e2e/test_doors.py`.
    """
    ours = os.environ.get("DATABUILD_COORDINATOR") == "1"
    with deployed(tmp_path_factory.mktemp("doors"), GIVEN, OUR_COORDINATOR if ours else SETTINGS) as deployment:
        yield deployment


class Backfills(NamedTuple):
    """Of one asset: over what a backfill may ask for, and over what has failed."""

    good: str
    failed: str


@pytest.fixture(scope="module")
def backfills(doors: Deployment) -> Backfills:
    """Started by the first test that takes a while, for Dagster's daemon goes on with them every 30 s."""
    return Backfills(doors.backfill("filled", LIVE, HELD, MISSING), doors.backfill("filled", FAILED))


@pytest.fixture(scope="module")
def job_backfill(doors: Deployment) -> str:
    """The id of what `dagster job backfill` started, by the first test as well."""
    options = ("-f", "definitions.py", "-j", "refilling", "--partitions", f"{LIVE},{MISSING}", "--noprompt")
    out = doors.finish(doors.start_module("dagster", "job", "backfill", *options))
    return re.findall(r"Launched backfill job `(\w+)`", out)[0]


# A person's doors


@pytest.mark.usefixtures("backfills", "job_backfill")
def test_the_materialize_button_for_a_partition(doors: Deployment) -> None:
    doors.tell("mended-button")

    runs = {key: doors.press_materialize("button", key=key) for key in (FAILED, HELD)}

    _once_it_waits_the_other_build_goes_on(doors, "button")
    assert {doors.wait_for_run(run_id).status for run_id in runs.values()} == {"SUCCESS"}
    _a_person_got(doors, "button", runs)


def test_a_job_with_several_assets_in_one_run(doors: Deployment) -> None:
    """It builds what it can, and then waits (rule 8.2)."""
    doors.tell("mended-job_second")

    run_id = doors.press_materialize(job="several", keys=(KEYS[0], KEYS[-1]))

    doors.wait_for_joiner(f"job_second@{HELD}")
    doors.wait_until(lambda: doors.calls(f"job_second@{MISSING}") == 1, "what is missing is built before the wait ends")
    doors.tell("go-job_second")
    assert doors.wait_for_run(run_id).status == "SUCCESS"
    _a_person_got(doors, "job_second", dict.fromkeys(KEYS, run_id))
    of_the_first = spoken(doors.answers(run_id).values(), of="job_first")
    assert of_the_first == {FAILED: REUSED, LIVE: REUSED, HELD: REUSED, MISSING: BUILT}
    assert {key: doors.calls(f"job_first@{key}") for key in KEYS} == dict.fromkeys(KEYS, 1)


def test_dagster_asset_materialize(doors: Deployment) -> None:
    doors.tell("mended-command")
    arguments = ("-f", "definitions.py", "--select", "command", "--partition", FAILED)

    doors.finish(doors.start_module(*ASSET_MATERIALIZE, *arguments))

    _a_person_got(doors, "command", {FAILED: doors.newest_requester(f"command@{FAILED}")})


def test_materialize_in_a_test(doors: Deployment) -> None:
    doors.tell("mended-materialized")

    crowd = doors.start_crowd(*refs("materialized"))

    _once_it_waits_the_other_build_goes_on(doors, "materialized")
    done = answers_of(crowd)
    assert all(item["success"] for item in done)
    _a_person_got(doors, "materialized", {entry["ref"].partition("@")[2]: entry["run_id"] for entry in done})


def test_databuild_build(doors: Deployment) -> None:
    """A want opens nothing; the command says what does (rule 8.7)."""
    process = doors.start_module("databuild_dagster", "build", *refs("built"), "--json")

    _once_it_waits_the_other_build_goes_on(doors, "built")
    out, err = process.communicate(timeout=MAX_SECONDS)
    answer = json.loads(out.splitlines()[-1])
    assert (process.returncode, answer["refs"]) == (1, {"live": 3, "failed": 1}), err
    _a_program_got(doors, "built", dict.fromkeys(KEYS, answer["request_id"]))


def test_re_execution_from_failure(doors: Deployment) -> None:
    """The step that failed is opened and built again."""
    n_calls = doors.calls(f"parent@{FAILED}")
    failed = doors.wait_for_run(doors.press_materialize("parent", "again", key=FAILED))
    assert failed.status == "FAILURE"
    doors.tell("mended-again")

    again = doors.wait_for_run(doors.reexecute(failed.run_id, "FROM_FAILURE"))

    assert again.status == "SUCCESS"
    assert spoken(doors.answers(failed.run_id).values(), of="again") == {FAILED: "built, failed"}
    assert spoken(doors.answers(again.run_id).values(), of="again") == {FAILED: BUILT}
    assert (doors.calls(f"again@{FAILED}"), doors.calls(f"parent@{FAILED}")) == (2, n_calls)
    assert doors.violations() == []


# Doors without a person


def test_a_schedule(doors: Deployment) -> None:
    runs = doors.run_of_each_key("scheduled", FAILED, HELD, dagster__schedule_name="nightly")
    (doors.folder / "night").unlink()

    _once_it_waits_the_other_build_goes_on(doors, "scheduled")
    _each_run_succeeds_but_the_refused_one(doors, runs)
    _a_program_got(doors, "scheduled", runs)


def test_declarative_automation_eager(doors: Deployment) -> None:
    """Dagster itself does not ask for what another Dagster run is building."""
    doors.wait_until_automation_has_looked()
    rebuilt = doors.press_materialize("parent", keys=(KEYS[0], KEYS[-1]), tags={"databuild/rebuild": "true"})
    assert doors.wait_for_run(rebuilt).status == "SUCCESS"

    keys = (LIVE, FAILED, MISSING)
    doors.wait_until(lambda: all(_automated(doors, f"eager@{key}") for key in keys), "automation has asked")
    runs = {key: _automated(doors, f"eager@{key}")[0] for key in keys}
    statuses = {key: doors.wait_for_run(run_id).status for key, run_id in runs.items()}
    assert statuses[FAILED] == "FAILURE"
    assert "`databuild retry " in doors.log_of(runs[FAILED])
    _got(doors, "eager", runs, {LIVE: REUSED, FAILED: REFUSED, MISSING: BUILT})


def _automated(doors: Deployment, ref: str) -> list[str]:
    """The Dagster runs of automation that asked for a ref, some of them for several."""
    automated = {run.run_id for run in doors.runs(dagster__from_automation_condition="true")}
    return [entry.requester for entry in doors.ledger.of_ref(ref) if entry.requester in automated]


def test_a_backfill_of_a_single_run(doors: Deployment, backfills: Backfills) -> None:
    """It ends successful though others build, or have built, some of its partitions; what is refused fails it."""
    good, failed = backfills

    _once_it_waits_the_other_build_goes_on(doors, "filled")

    assert doors.wait_for_backfill(good) == "COMPLETED_SUCCESS"
    assert doors.wait_for_backfill(failed) == "COMPLETED_FAILED"
    denied = [run for run in doors.runs(dagster__backfill=failed) if run.tags.get(OUTCOME_TAG) == "denied"]
    asked = doors.runs(dagster__backfill=good) + denied
    answers = {ref: run.run_id for run in asked for ref in doors.answers(run.run_id)}
    _a_program_got(doors, "filled", {ref.partition("@")[2]: run_id for ref, run_id in answers.items()})
    assert answers.keys() == set(refs("filled"))
    assert len(asked) == 2


def test_dagster_job_backfill(doors: Deployment, job_backfill: str) -> None:
    doors.wait_until_live(f"refilled@{LIVE}")
    doors.wait_until_live(f"refilled@{MISSING}")

    assert doors.wait_for_backfill(job_backfill).startswith("COMPLETED")
    answers = [spoken(doors.answers(run.run_id).values()) for run in doors.runs(dagster__backfill=job_backfill)]
    assert sorted(answers, key=str) == [{LIVE: BUILT}, {MISSING: BUILT}]
    assert [doors.calls(f"refilled@{key}") for key in (LIVE, MISSING)] == [1, 1]
    assert doors.violations() == []


# All at once


def test_of_fifty_requests_at_once_one_builds(doors: Deployment) -> None:
    """Rule 8.4. Some are Dagster runs that wait in its queue when the build is done already."""
    ref = f"crowded@{HELD}"
    n_asked = 50 - N_OF_THE_CROWD + MAX_OF_THE_CROWD
    refs_of_wants = CreateWants(wants=((ref,),))

    crowd = doors.start_crowd(*[ref] * 12)
    build = doors.start_module("databuild_dagster", "build", ref, "--json")
    runs = [doors.press_materialize("crowded", key=HELD, tags={"crowd": "one"}) for _ in range(N_OF_THE_CROWD)]
    doors.wait_until(lambda: doors.calls(ref) == 1, "one builds")
    requests = [doors.engine.handle(refs_of_wants).request_id for _ in range(34)]
    doors.wait_until(lambda: len(doors.ledger.of_ref(ref)) >= n_asked, "all that can have asked")
    doors.tell("go-crowded")

    assert all(item["success"] for item in answers_of(crowd))
    doors.finish(build)
    assert {doors.wait_for_run(run_id).status for run_id in runs} == {"SUCCESS"}
    # The orchestrator may have launched for the wants, and another have done that launch's work before it.
    launches = {run.run_id for run in doors.runs() if run.is_launch}
    entries = {entry.requester: entry for entry in doors.ledger.of_ref(ref) if entry.requester not in launches}
    assert {*runs, *requests} <= entries.keys()
    assert len(entries) == 50
    kinds = Counter(spoken([entry])[HELD] for entry in entries.values())
    assert kinds[BUILT] == 1
    assert kinds.keys() <= {BUILT, JOINED, REUSED}
    assert {entry.uuid for entry in entries.values()} == set(doors.uuids(ref).values())
    assert doors.calls(ref) == len(doors.queries.instances.history(ref)) == 1
    assert doors.violations() == []


# What a Dagster in use does besides


def test_our_sensors_run_as_soon_as_they_are_deployed(doors: Deployment) -> None:
    (entry,) = doors.graphql(SENSORS)["workspaceOrError"]["locationEntries"]
    (repository,) = entry["locationOrLoadError"]["repositories"]

    sensors = {sensor["name"]: sensor["sensorState"]["status"] for sensor in repository["sensors"]}

    assert sensors["databuild_orchestrator"] == sensors["databuild_operations"] == "RUNNING"


def test_hooks_sensors_checks_and_freshness_see_what_is_built(doors: Deployment) -> None:
    """A launch of the orchestrator succeeds, and a run of a person fails."""
    doors.databuild("want", "create", f"watched@{MISSING}")
    failed = doors.press_materialize("watched", key=FAILED)

    doors.wait_until(lambda: doors.has_seen("failure-hook-ValueError", f"failure-of-{failed}"), "the failure is seen")
    doors.wait_until_live(f"watched@{MISSING}")
    (built,) = [run for run in doors.queries.job_runs.newest() if f"watched@{MISSING}" in run.refs]
    seen = ("success-hook", "check", f"success-of-{built.dagster_run_id}", f"arrival-of-{MISSING}")
    doors.wait_until(lambda: doors.has_seen(*seen), "the success is seen")
    doors.wait_until(lambda: doors.freshness("watched") == "HEALTHY", "it is fresh")
    assert doors.violations() == []


def test_a_build_whose_dagster_run_is_deleted_serves_who_waits_for_it(doors: Deployment) -> None:
    ref = f"deleted@{HELD}"
    building = doors.press_materialize("deleted", key=HELD)
    doors.wait_until(lambda: doors.calls(ref) == 1, "one builds")
    waiting = doors.press_materialize("deleted", key=HELD)
    assert doors.wait_for_joiner(ref) == waiting

    assert doors.mutate(f'deleteRun(runId: "{building}")') == "DeletePipelineRunSuccess"
    doors.tell("go-deleted")

    assert doors.wait_for_run(waiting).status == "SUCCESS"
    assert doors.state(ref) is InstanceState.LIVE
    assert doors.violations() == []


def _once_it_waits_the_other_build_goes_on(doors: Deployment, asset: str) -> None:
    doors.wait_for_joiner(f"{asset}@{HELD}")
    doors.tell(f"go-{asset}")


def _each_run_succeeds_but_the_refused_one(doors: Deployment, runs: Mapping[str, str]) -> None:
    """A ref that only a person may open fails the requester (rule 8.8)."""
    ended = {key: doors.wait_for_run(run_id) for key, run_id in runs.items()}
    assert {key: run.status for key, run in ended.items()} == {**dict.fromkeys(runs, "SUCCESS"), FAILED: "FAILURE"}
    assert [key for key, run in ended.items() if run.tags.get(OUTCOME_TAG) == "denied"] == [FAILED]
    assert "`databuild retry " in doors.log_of(runs[FAILED])


def _a_person_got(doors: Deployment, asset: str, requesters: Mapping[str, str]) -> None:
    """A person's door builds what is missing, and opens what has failed; the rest is another's (rule 8.1)."""
    answers = {LIVE: REUSED, FAILED: BUILT, HELD: JOINED, MISSING: BUILT}
    _got(doors, asset, requesters, {key: answers[key] for key in requesters})


def _a_program_got(doors: Deployment, asset: str, requesters: Mapping[str, str]) -> None:
    """Only a person opens a failed ref (rule 8.1)."""
    answers = {LIVE: REUSED, FAILED: REFUSED, HELD: JOINED, MISSING: BUILT}
    _got(doors, asset, requesters, {key: answers[key] for key in requesters})


def _got(doors: Deployment, asset: str, requesters: Mapping[str, str], expected: Mapping[str, str]) -> None:
    answers = {key: doors.answers(requesters[key])[f"{asset}@{key}"] for key in expected}
    uuids = dict(zip(expected, doors.uuids(*refs(asset, expected)).values(), strict=True))
    assert spoken(answers.values()) == expected
    assert {key: answer.uuid for key, answer in answers.items()} == uuids
    for key, answer in expected.items():
        ref = f"{asset}@{key}"
        n_before = 0 if key == MISSING else 1
        assert doors.calls(ref) == len(doors.queries.instances.history(ref)) == n_before + (answer == BUILT), ref
        assert (uuids[key] == doors.given[ref]) == (answer != BUILT), ref
    assert doors.violations() == []
