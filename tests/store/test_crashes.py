"""kill -9 between any two statements of a command leaves the state before it, or the state after it (SPEC 3.3)."""

from __future__ import annotations

import os
import signal

import pytest

from databuild_dagster.model import commands as c
from databuild_dagster.model.errors import Refused
from databuild_dagster.model.states import InstanceState
from databuild_dagster.store import rebuild, schema
from tests.support.catalog import dataset
from tests.support.world import World

#: More statements than any of these commands has; a command that is not done by then is a mistake.
MOST_STATEMENTS = 300


def tables(world):
    with world.store.reading() as connection:
        names = [table.name for table in schema.metadata.sorted_tables]
        return {name: connection.execute(f"SELECT * FROM {name} ORDER BY 1, 2").fetchall() for name in names}


def killed_at(world, statement, act):
    """Whether a forked child was killed as it was about to run its n-th statement."""
    pid = os.fork()
    if pid == 0:
        try:
            count = 0

            def die_in_time(_sql):
                nonlocal count
                count += 1
                if count == statement:
                    os.kill(os.getpid(), signal.SIGKILL)

            world.store._connection().set_trace_callback(die_in_time)
            act(world)
            os._exit(0)
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in (0, -signal.SIGKILL)
    return code != 0


def want_two(world):
    world.want("a", "c")


def miss(world):
    world.miss("a", "b", "c")


def arrive_and_wake(world):
    world.succeed("b")


def claim(world):
    world.claim("a", "c", "e")


def cancel(world):
    world.cancel_want(world.open_wants("a")[0].id)


def nothing(world):
    return None


def waiting(world):
    world.miss("a", "b")
    world.start("b")


def running(world):
    world.start("a")


STORIES = [
    (nothing, want_two),
    (running, miss),
    (waiting, arrive_and_wake),
    (waiting, cancel),
    (nothing, claim),
]


@pytest.mark.parametrize(("before", "act"), STORIES, ids=lambda step: step.__name__)
def test_a_command_killed_at_any_statement_happened_or_did_not(tmp_path, before, act):
    """SPEC 3.3: one transaction. The next process finds a state that checks clean, and can do the command."""
    world = World([dataset(name) for name in "abcde"], url=f"sqlite:///{tmp_path}/build.db")
    before(world)
    untouched = tables(world)

    for statement in range(1, MOST_STATEMENTS):
        if not killed_at(world, statement, act):
            break
        if tables(world) != untouched:
            break  # Killed behind its COMMIT.
        assert world.check() == [] if statement % 5 == 0 else True
    else:
        raise AssertionError(f"not done after {MOST_STATEMENTS} statements")

    assert statement > 8
    assert tables(world) != untouched
    assert world.check() == []
    world.store.close()


def test_a_rebuild_killed_at_any_statement_happened_or_did_not(tmp_path):
    """SPEC 3.4"""
    world = World([dataset(name) for name in "ab"], url=f"sqlite:///{tmp_path}/build.db")
    world.miss("a", "b")
    with world.store.writing() as work:
        work.connection.execute("UPDATE databuild_refs SET misses = 7")
    broken = tables(world)

    for statement in range(1, MOST_STATEMENTS):
        if not killed_at(world, statement, lambda world: rebuild(world.store)):
            break
        if tables(world) != broken:
            break

    assert statement > 8
    assert world.check() == []
    world.store.close()


def test_an_interrupted_statement_undoes_the_whole_command(tmp_path):
    """SPEC 3.5: sqlite's progress handler stops a statement in its midst, wherever that may be."""
    world = World([dataset(name) for name in "abcde"], url=f"sqlite:///{tmp_path}/build.db")
    world.miss("a", "b")
    job_run = world.job_run("b")
    untouched = tables(world)
    command = c.MissDeps(misses=(c.RunMiss(job_run, {"b": ("c", "d")}),))
    connection = world.store._connection()

    interrupted = 0
    for steps in range(1, 4000, 11):
        left = [steps]

        def stop(left=left):
            left[0] -= 1
            return left[0] == 0

        connection.set_progress_handler(stop, 1)
        try:
            world.handle(command)
        except Refused:
            raise
        except Exception as error:
            connection.set_progress_handler(None, 0)
            assert "interrupted" in str(error)
            if tables(world) != untouched:
                break  # Stopped on the way back from its COMMIT.
            interrupted += 1
        else:
            break
    connection.set_progress_handler(None, 0)

    assert interrupted > 10
    assert world.state("b") is InstanceState.UPSTREAM_BUILDING
    assert world.check() == []
    world.store.close()
