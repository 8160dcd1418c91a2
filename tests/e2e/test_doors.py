"""Every door of Dagster, end to end: whoever starts a build, by whatever means, the data is built once (SPEC 8).

One deployment for all: before it starts, each asset has a partition that is live, one that has failed and one that
another Dagster run is building. Each test comes through one door and asks for these and for one that is missing.
"""

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pytest

from databuild_dagster.bindings.tags import LAUNCH_TAG, OUTCOME_TAG
from databuild_dagster.model.commands import CreateWants
from databuild_dagster.model.coordination import Answer

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

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

#: Assets of which all of `KEYS` is true when the deployment starts.
GIVEN = (
    *("button", "span", "job_second", "command", "dg", "materialized", "built", "wanted", "scheduled", "sensed"),
    *("filled", "filled_at_once", "eager"),
)
#: Of the Dagster runs with the tag of the crowd, those that Dagster lets run at once; the others wait in its queue.
MAX_OF_THE_CROWD = 4
#: Modules that are commands.
ASSET_MATERIALIZE, DG = ("dagster", "asset", "materialize"), "dagster_dg_cli.cli"

BUILT, REUSED, JOINED, REFUSED = "built, live", "reused, live", "joined, live", "refused, refused"


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """With Dagster's own run queue; with `DATABUILD_COORDINATOR=1` in the environment, behind ours."""
    ours = os.environ.get("DATABUILD_COORDINATOR") == "1"
    with deployed(tmp_path_factory.mktemp("doors"), GIVEN, OUR_COORDINATOR if ours else SETTINGS) as deployment:
        yield deployment


class Backfills(NamedTuple):
    """Of one asset: over what a backfill may ask for, and over what has failed."""

    good: str
    failed: str


@pytest.fixture(scope="module")
def backfills(doors: Deployment) -> dict[str, Backfills]:
    """All at once, for Dagster's daemon goes on with them every 30 s."""
    return {
        asset: Backfills(doors.backfill(asset, LIVE, HELD, MISSING), doors.backfill(asset, FAILED))
        for asset in ("filled", "filled_at_once")
    }


# A person's doors


def test_the_materialize_button_for_a_partition(doors: Deployment, backfills: dict[str, Backfills]) -> None:
    doors.tell("mended-button")

    runs = {key: doors.press_materialize("button", key=key) for key in KEYS}

    _once_it_waits_the_other_build_goes_on(doors, "button")
    assert {doors.wait_for_run(run_id).status for run_id in runs.values()} == {"SUCCESS"}
    _a_person_got(doors, "button", runs)


def test_the_materialize_button_for_what_has_no_partitions(doors: Deployment) -> None:
    first = doors.wait_for_run(doors.press_materialize("whole"))
    second = doors.wait_for_run(doors.press_materialize("whole"))

    assert (first.status, second.status) == ("SUCCESS", "SUCCESS")
    (built,), (reused,) = doors.answers(first.run_id).values(), doors.answers(second.run_id).values()
    assert (built.kind, reused.kind, built.uuid) == (Answer.BUILD, Answer.REUSE, reused.uuid)
    assert doors.calls("whole@all") == 1


def test_a_range_in_a_single_run(doors: Deployment) -> None:
    """It builds what it can, and then waits (SPEC 8.2)."""
    doors.tell("mended-span")

    run_id = doors.press_materialize("span", keys=(KEYS[0], KEYS[-1]))

    assert doors.wait_for_joiner(f"span@{HELD}") == run_id
    doors.wait_until(lambda: doors.calls(f"span@{MISSING}") == 1, "what is missing is built before the wait is over")
    doors.tell("go-span")
    assert doors.wait_for_run(run_id).status == "SUCCESS"
    _a_person_got(doors, "span", dict.fromkeys(KEYS, run_id))


def test_a_job_with_several_assets_in_one_run(doors: Deployment) -> None:
    doors.tell("mended-job_second")

    run_id = doors.press_materialize(job="several", keys=(KEYS[0], KEYS[-1]))

    _once_it_waits_the_other_build_goes_on(doors, "job_second")
    assert doors.wait_for_run(run_id).status == "SUCCESS"
    _a_person_got(doors, "job_second", dict.fromkeys(KEYS, run_id))
    of_the_first = spoken(doors.answers(run_id).values(), of="job_first")
    assert of_the_first == {FAILED: REUSED, LIVE: REUSED, HELD: REUSED, MISSING: BUILT}
    assert {key: doors.calls(f"job_first@{key}") for key in KEYS} == dict.fromkeys(KEYS, 1)


def test_dagster_asset_materialize(doors: Deployment) -> None:
    doors.tell("mended-command")

    processes = [
        doors.start_module(*ASSET_MATERIALIZE, "-f", "definitions.py", "--select", "command", "--partition", key)
        for key in KEYS
    ]

    _once_it_waits_the_other_build_goes_on(doors, "command")
    for process in processes:
        doors.finish(process)
    _a_person_got(doors, "command", {key: doors.newest_requester(f"command@{key}") for key in KEYS})


def test_dg_launch(doors: Deployment) -> None:
    keys = (LIVE, MISSING)

    processes = [
        doors.start_module(DG, "launch", "-f", "definitions.py", "--assets", "dg", "--partition", key) for key in keys
    ]

    for process in processes:
        doors.finish(process)
    _got(doors, "dg", {key: doors.newest_requester(f"dg@{key}") for key in keys}, {LIVE: REUSED, MISSING: BUILT})


def test_materialize_in_a_test(doors: Deployment) -> None:
    doors.tell("mended-materialized")

    crowd = doors.start_crowd(*refs("materialized"))

    _once_it_waits_the_other_build_goes_on(doors, "materialized")
    done = answers_of(crowd)
    assert all(each["success"] for each in done)
    _a_person_got(doors, "materialized", {each["ref"].partition("@")[2]: each["run_id"] for each in done})


def test_databuild_build(doors: Deployment) -> None:
    """A want opens nothing; the command says what does (SPEC 8.7)."""
    process = doors.start_module("databuild_dagster", "build", *refs("built"), "--json")

    _once_it_waits_the_other_build_goes_on(doors, "built")
    out, err = process.communicate(timeout=MAX_SECONDS)
    answer = json.loads(out.splitlines()[-1])
    assert (process.returncode, answer["refs"]) == (1, {"live": 3, "failed": 1}), err
    _a_program_got(doors, "built", dict.fromkeys(KEYS, answer["request_id"]))


def test_our_own_wants(doors: Deployment) -> None:
    wants = doors.databuild("want", "create", *refs("wanted"))

    _once_it_waits_the_other_build_goes_on(doors, "wanted")
    ended = {"Successful", "Failed"}
    request = wants[0]["request_id"]
    doors.wait_until(lambda: {want.state.value for want in doors.queries.wants_named(request)} <= ended, "wants ended")
    _a_program_got(doors, "wanted", dict.fromkeys(KEYS, request))


def test_re_execution_from_failure(doors: Deployment) -> None:
    """The step that failed is opened and built again; what was live is not."""
    failed = doors.wait_for_run(doors.press_materialize("parent", "again", key=FAILED))
    assert failed.status == "FAILURE"
    doors.tell("mended-again")

    again = doors.wait_for_run(doors.reexecute(failed.run_id, "FROM_FAILURE"))
    once_more = doors.wait_for_run(doors.reexecute(again.run_id, "ALL_STEPS"))

    assert (again.status, once_more.status) == ("SUCCESS", "SUCCESS")
    assert spoken(doors.answers(failed.run_id).values(), of="again") == {FAILED: "built, failed"}
    assert spoken(doors.answers(again.run_id).values(), of="again") == {FAILED: BUILT}
    assert spoken(doors.answers(once_more.run_id).values(), of="again") == {FAILED: REUSED}
    assert (doors.calls(f"again@{FAILED}"), doors.calls(f"parent@{FAILED}")) == (2, 1)
    assert doors.violations() == []


def test_run_retries(doors: Deployment) -> None:
    """Dagster's retry of a person's run is the person's."""
    first = doors.press_materialize("retried", key="shaky", tags={"dagster/max_retries": "1"})

    doors.wait_until(lambda: bool(doors.runs(dagster__parent_run_id=first)), "Dagster tries again")
    (retry,) = doors.runs(dagster__parent_run_id=first)

    assert doors.wait_for_run(retry.run_id).status == "SUCCESS"
    assert spoken(doors.answers(first).values()) == {"shaky": "built, failed"}
    assert spoken(doors.answers(retry.run_id).values()) == {"shaky": BUILT}
    assert doors.calls("retried@shaky") == 2
    assert doors.violations() == []


# Doors without a person


def test_a_sensor(doors: Deployment) -> None:
    doors.tell("arrived")

    runs = doors.run_of_each_key("sensed", *KEYS, dagster__sensor_name="watching")

    _once_it_waits_the_other_build_goes_on(doors, "sensed")
    _each_run_succeeds_and_one_was_denied(doors, runs)
    _a_program_got(doors, "sensed", runs)


def test_a_schedule(doors: Deployment) -> None:
    runs = doors.run_of_each_key("scheduled", *KEYS, dagster__schedule_name="nightly")
    (doors.folder / "night").unlink()

    _once_it_waits_the_other_build_goes_on(doors, "scheduled")
    _each_run_succeeds_and_one_was_denied(doors, runs)
    _a_program_got(doors, "scheduled", runs)


def test_declarative_automation_on_missing(doors: Deployment) -> None:
    doors.wait_until_automation_has_looked()

    assert doors.add_partition("new") == "AddDynamicPartitionSuccess"

    (run_id,) = doors.run_of_each_key("on_missing", "new", dagster__from_automation_condition="true").values()
    assert doors.wait_for_run(run_id).status == "SUCCESS"
    assert spoken(doors.answers(run_id).values()) == {"new": BUILT}
    assert doors.calls("on_missing@new") == 1


def test_declarative_automation_eager(doors: Deployment) -> None:
    """Dagster itself does not ask for what another Dagster run is building."""
    doors.wait_until_automation_has_looked()
    rebuilt = doors.press_materialize("parent", keys=(KEYS[0], KEYS[-1]), tags={"databuild/rebuild": "true"})
    assert doors.wait_for_run(rebuilt).status == "SUCCESS"

    keys = (LIVE, FAILED, MISSING)
    doors.wait_until(lambda: all(_automated(doors, f"eager@{key}") for key in keys), "automation has asked")
    runs = {key: _automated(doors, f"eager@{key}")[0] for key in keys}
    assert {doors.wait_for_run(run_id).status for run_id in runs.values()} == {"SUCCESS"}
    assert "Taint it" in doors.log_of(runs[FAILED])
    _got(doors, "eager", runs, {LIVE: REUSED, FAILED: REFUSED, MISSING: BUILT})


def _automated(doors: Deployment, ref: str) -> list[str]:
    """The Dagster runs of automation that asked for a ref, some of them for several."""
    automated = {run.run_id for run in doors.runs(dagster__from_automation_condition="true")}
    return [entry.requester for entry in doors.ledger.of_ref(ref) if entry.requester in automated]


@pytest.mark.parametrize("asset", ["filled", "filled_at_once"], ids=["multi-run", "single-run"])
def test_a_backfill(doors: Deployment, backfills: dict[str, Backfills], asset: str) -> None:
    """It ends successful though others build, or have built, some of its partitions; what is refused fails it."""
    good, failed = backfills[asset]

    _once_it_waits_the_other_build_goes_on(doors, asset)

    assert doors.wait_for_backfill(good) == "COMPLETED_SUCCESS"
    assert doors.wait_for_backfill(failed) == "COMPLETED_FAILED"
    denied = [run for run in doors.runs(dagster__backfill=failed) if run.tags.get(OUTCOME_TAG) == "denied"]
    asked = doors.runs(dagster__backfill=good) + denied
    answers = {ref: run.run_id for run in asked for ref in doors.answers(run.run_id)}
    _a_program_got(doors, asset, {ref.partition("@")[2]: run_id for ref, run_id in answers.items()})
    assert len(asked) == (4 if asset == "filled" else 2)


# All at once


def test_of_fifty_requests_at_once_from_every_door_one_builds(doors: Deployment) -> None:
    """SPEC 8.4. Some are Dagster runs that wait in its queue when the build is done already."""
    ref = f"crowded@{HELD}"
    refs_of_wants = CreateWants(wants=((ref,),))

    crowd = doors.start_crowd(*[ref] * 28)
    commands = [
        doors.start_module(*ASSET_MATERIALIZE, "-f", "definitions.py", "--select", "crowded", "--partition", HELD),
        doors.start_module(DG, "launch", "-f", "definitions.py", "--assets", "crowded", "--partition", HELD),
        doors.start_module("databuild_dagster", "build", ref, "--json"),
        doors.start_module("databuild_dagster", "want", "create", ref, "--json"),
    ]
    runs = [doors.press_materialize("crowded", key=HELD, tags={"crowd": "one"}) for _ in range(8)]
    doors.wait_until(lambda: doors.calls(ref) == 1, "one builds")
    requests = [doors.engine.handle(refs_of_wants).request_id for _ in range(10)]
    doors.wait_until(lambda: len(doors.ledger.of_ref(ref)) >= 50 - 8 + MAX_OF_THE_CROWD, "all that can have asked")
    doors.tell("go-crowded")

    assert all(each["success"] for each in answers_of(crowd))
    for command in commands:
        doors.finish(command)
    assert {doors.wait_for_run(run_id).status for run_id in runs} == {"SUCCESS"}
    # The orchestrator may have launched for the wants, and another have done that launch's work before it.
    launches = {run.run_id for run in doors.runs() if LAUNCH_TAG in run.tags}
    entries = {entry.requester: entry for entry in doors.ledger.of_ref(ref) if entry.requester not in launches}
    assert {*runs, *requests} <= entries.keys()
    assert len(entries) == 50
    kinds = Counter(spoken([entry])[HELD] for entry in entries.values())
    assert kinds == {BUILT: 1, JOINED: kinds[JOINED], REUSED: kinds[REUSED]}
    assert {entry.uuid for entry in entries.values()} == set(doors.uuids(ref).values())
    assert doors.calls(ref) == len(doors.queries.history(ref)) == 1
    assert doors.violations() == []


def _once_it_waits_the_other_build_goes_on(doors: Deployment, asset: str) -> None:
    doors.wait_for_joiner(f"{asset}@{HELD}")
    doors.tell(f"go-{asset}")


def _each_run_succeeds_and_one_was_denied(doors: Deployment, runs: Mapping[str, str]) -> None:
    """What nobody may open is no failure of who asks (SPEC 8.1)."""
    ended = {key: doors.wait_for_run(run_id) for key, run_id in runs.items()}
    assert {key: run.status for key, run in ended.items()} == dict.fromkeys(runs, "SUCCESS")
    assert [key for key, run in ended.items() if run.tags.get(OUTCOME_TAG) == "denied"] == [FAILED]
    assert "Taint it" in doors.log_of(runs[FAILED])


def _a_person_got(doors: Deployment, asset: str, requesters: Mapping[str, str]) -> None:
    """A person's door builds what is missing, and opens what has failed; the rest is another's (SPEC 8.1)."""
    _got(doors, asset, requesters, {LIVE: REUSED, FAILED: BUILT, HELD: JOINED, MISSING: BUILT})


def _a_program_got(doors: Deployment, asset: str, requesters: Mapping[str, str]) -> None:
    """Nobody but a person opens what has failed (SPEC 8.1)."""
    _got(doors, asset, requesters, {LIVE: REUSED, FAILED: REFUSED, HELD: JOINED, MISSING: BUILT})


def _got(doors: Deployment, asset: str, requesters: Mapping[str, str], expected: Mapping[str, str]) -> None:
    answers = {key: doors.answers(requesters[key])[f"{asset}@{key}"] for key in expected}
    uuids = dict(zip(expected, doors.uuids(*refs(asset, expected)).values(), strict=True))
    assert spoken(answers.values()) == expected
    assert {key: answer.uuid for key, answer in answers.items()} == uuids
    for key, answer in expected.items():
        ref = f"{asset}@{key}"
        n_before = 0 if key == MISSING else 1
        assert doors.calls(ref) == len(doors.queries.history(ref)) == n_before + (answer == BUILT), ref
        assert (uuids[key] == doors.given[ref]) == (answer != BUILT), ref
    assert doors.violations() == []
