"""One door for change: a command is recorded once, as a whole, or not at all (rules 3.3, 3.5)."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from databuild_dagster.model import commands as c
from databuild_dagster.model.command_ids import with_fingerprint
from databuild_dagster.model.errors import CommandIdUsed, InvalidRequest, Refused
from tests.support.catalog import dataset


def test_a_repeated_command_id_gives_the_first_result_and_changes_nothing(world):
    """Rule 3.3"""
    command = c.CreateWants(wants=(("a",),))
    first = world.handle(command, command_id="once")
    before = world.seq

    second = world.handle(command, command_id="once")

    assert (first.repeated, second.repeated) == (False, True)
    assert second.events == first.events
    assert second.want_ids == first.want_ids
    assert world.seq == before


def test_a_repeated_command_gets_its_first_answer_even_if_it_would_be_refused_now(world):
    """Rule 3.3: a client that lost the answer asks again."""
    job_run = world.job_run("a")
    command = c.FailJobRuns(failures=(c.RunFailure(job_run, "it raised"),))
    first = world.handle(command, command_id="fail")

    assert world.handle(command, command_id="fail").events == first.events


def asked(id, *what):
    return with_fingerprint(id, what)


@pytest.mark.databases("sqlite", "postgres")
def test_a_command_id_with_another_request_is_refused_and_records_nothing(world):
    """Rule 3.3: an answer as if it was done would hide that it was not."""
    first = world.handle(c.CreateWants(wants=(("a",),)), command_id=asked("once", "a"))
    before = world.seq

    again = world.handle(c.CreateWants(wants=(("a",),)), command_id=asked("once", "a"))
    with pytest.raises(CommandIdUsed, match="The command id once was used before"):
        world.handle(c.CreateWants(wants=(("b",),)), command_id=asked("once", "b"))

    assert (again.repeated, again.events, world.seq) == (True, first.events, before)
    assert world.queries.events.of_command("once") == list(first.events)


def test_an_id_that_was_used_without_a_fingerprint_is_refused_with_one(world):
    """Rule 3.3: nothing is known of what was asked."""
    world.handle(c.CreateWants(wants=(("a",),)), command_id="once")

    with pytest.raises(CommandIdUsed):
        world.handle(c.CreateWants(wants=(("a",),)), command_id=asked("once", "a"))


@pytest.mark.databases("sqlite", "postgres")
def test_of_two_requests_with_one_id_at_once_one_is_recorded(make_world, shared_url):
    """Rule 3.3: in whichever order they get the write lock."""
    world, both_begin = make_world(dataset("a"), dataset("b"), url=shared_url), threading.Barrier(2)
    engines = {ref: world.process() for ref in ("a", "b")}

    def want(ref, id):
        both_begin.wait(250)
        try:
            return engines[ref].handle(c.CreateWants(wants=((ref,),)), command_id=asked(id, ref)).repeated
        except CommandIdUsed as refused:
            return type(refused)

    with ThreadPoolExecutor(2) as threads:
        for id in map(str, range(20)):
            before = world.seq
            answers = [threads.submit(want, ref, id) for ref in ("a", "b")]
            assert {answer.result(250) for answer in answers} == {False, CommandIdUsed}
            assert world.seq == before + 1


@pytest.mark.parametrize("command_id", ["", "a#1", "#"])
def test_a_command_id_that_could_be_mistaken_for_another_is_refused(world, command_id):
    """Rule 3.1"""
    with pytest.raises(InvalidRequest, match="command_id"):
        world.handle(c.CreateWants(wants=(("a",),)), command_id=command_id)


def test_a_refused_command_may_be_sent_again_under_its_id(world):
    """Rule 3.5: nothing was recorded, so nothing is known of it."""
    command = c.TaintPartitions(refs=("a",), reason="wrong")
    with pytest.raises(Refused):
        world.handle(command, command_id="taint")
    world.live("a")

    assert not world.handle(command, command_id="taint").repeated


def test_every_event_says_when_and_by_whom(world):
    """Rule 3.1"""
    world.clock.turn(5)
    outcome = world.handle(c.CreateWants(wants=(("a",),)))

    (event,) = outcome.events
    assert (event.seq, event.at, event.actor) == (world.seq, world.clock.now, "tester")


def test_a_preview_names_a_ref_that_is_tainted_already(world):
    """Rule 7.3: exactly what would get the taint."""
    world.live("a")
    world.taint("a")

    assert world.engine.preview(c.TaintPartitions(refs=("a",), reason="wrong again")).tainted == ("a",)


@pytest.mark.databases("sqlite")
def test_a_command_of_one_ref_runs_few_statements(world):
    """Rule 11.3: a further statement takes 2 to 8 µs, and on PostgreSQL a round trip."""
    statements: list[str] = []
    connection = world.store._connection()

    def run_by(command: c.Command) -> int:
        statements.clear()
        world.handle(command)
        # SQLite reports a statement twice if a trigger checks it.
        return len(set(statements))

    # The engine knows the registrations, and asks the catalog before a transaction begins.
    world.engine.preview(c.CreateWants(wants=(("a", "b"),)))
    launch = world.launch_of("b")
    commands = {
        "want": c.CreateWants(wants=(("b",),)),
        "buffer": launch,
        "start": c.StartLaunch(launch_id=launch.launch_id, dagster_run_id="run", holder="somewhere"),
        "dep miss": c.MissDeps(misses=(c.RunMiss(launch.runs[0].job_run_id, {"b": ("a",)}),)),
    }

    connection.set_trace_callback(statements.append)
    counted = {name: run_by(command) for name, command in commands.items()}
    connection.set_trace_callback(None)

    assert counted == {"want": 12, "buffer": 16, "start": 9, "dep miss": 26}
