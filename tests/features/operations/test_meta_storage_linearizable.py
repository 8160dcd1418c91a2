"""Concurrent histories of the meta storage are those of some sequence that respects time (rule 9.1).

Every answer carries its revision, so the sequence need not be searched for, as Wing and Gong do: invokes stand in the
order of their revisions, a read behind the invoke whose revision it names. What is left to check is that a plain dict,
asked in that order, gives the same answers, and that no client that began after another had ended comes before it.
"""

from __future__ import annotations

import multiprocessing
import random
import threading
import time
from typing import NamedTuple

import pytest

from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.holders import new_id
from databuild_dagster.features.operations.meta_storage import MetaStorage
from databuild_dagster.model.meta_storage import Put, Remove, do, exists, iif, not_exists, value_is
from databuild_dagster.store.store import open_store
from tests.support.catalog import SmallCatalog

KEYS = ("a", "b", "c")
PROCESSES, THREADS, OPERATIONS = 3, 2, 40


class Done(NamedTuple):
    """One operation, as who asked for it saw it."""

    began: float
    ended: float
    what: str
    key: str
    other: bytes
    value: bytes
    answer: object
    revision: int


def statement(what, key, other, value):
    match what:
        case "put":
            return do(Put(key, value), yields=True)
        case "remove":
            return iif(exists(key), do(Remove(key), yields=True))
        case "swap":
            return iif(value_is(key, "eq", other), do(Put(key, value), yields=True))
        case "make":
            return iif(not_exists(key), do(Put(key, value), yields=True))
    raise AssertionError(what)


def expected(state, done):
    """The same on a dict."""
    match done.what:
        case "read":
            return state.get(done.key)
        case "put":
            state[done.key] = done.value
            return True
        case "remove":
            return state.pop(done.key, None) is not None
        case "swap":
            if state.get(done.key) != done.other:
                return False
        case "make":
            if done.key in state:
                return False
    state[done.key] = done.value
    return True


def why_not(history: list[Done]) -> str | None:
    """The contradiction to linearizability; None without one."""
    in_order = sorted(history, key=lambda done: (done.revision, done.what == "read"))
    state: dict[str, bytes] = {}
    for done in in_order:
        if (answer := expected(state, done)) != done.answer:
            return f"{done} should have answered {answer!r}"
    writes = [done.revision for done in in_order if done.what != "read"]
    if len(set(writes)) != len(writes):
        return "two invokes have one revision"
    by_end = sorted(history, key=lambda done: done.ended)
    at, latest = 0, 0
    for done in sorted(history, key=lambda done: done.began):
        while by_end[at].ended < done.began:
            latest = max(latest, by_end[at].revision)
            at += 1
        if done.revision < latest or (done.what != "read" and done.revision == latest):
            return f"{done} began when revision {latest} had been answered"
    return None


def work(engine, seed, done):
    meta, rng = MetaStorage(engine), random.Random(seed)
    for number in range(OPERATIONS):
        what = rng.choice(["read", "read", "put", "remove", "swap", "swap", "make"])
        key, other, value = rng.choice(KEYS), b"%d" % rng.randrange(3), b"%d" % rng.randrange(3)
        began = time.monotonic()
        if what == "read":
            look = meta.get_all([key])
            answer, revision = look.entries[0].value, look.revision
        else:
            answers = meta.invoke_all([statement(what, key, other, value)], command_id=f"{seed}/{number}")
            answer, revision = answers.value, answers.revision
        done.append(Done(began, time.monotonic(), what, key, other, value, answer, revision))


def threads_of(url, seed, at, results):
    engine = Engine(open_store(url), SmallCatalog([]), new_id=new_id)
    time.sleep(max(0.0, at - time.time()))
    done: list[Done] = []
    threads = [threading.Thread(target=work, args=(engine, f"{seed}/{number}", done)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results.put(done)


def test_processes_and_threads_see_one_sequence(make_world, shared_url):
    """Rules 9.1, 3.3"""
    make_world(url=shared_url)
    spawn = multiprocessing.get_context("spawn")
    results = spawn.Queue()
    at = time.time() + 1.5
    processes = [spawn.Process(target=threads_of, args=(shared_url, seed, at, results)) for seed in range(PROCESSES)]
    for process in processes:
        process.start()
    history = [done for _ in processes for done in results.get(timeout=120)]
    for process in processes:
        process.join(250)

    assert len(history) == PROCESSES * THREADS * OPERATIONS
    assert {done.answer for done in history if done.what == "swap"} == {True, False}
    assert why_not(history) is None


def test_the_check_can_fail():
    put = Done(0, 1, "put", "a", b"", b"1", True, 5)
    read = Done(2, 3, "read", "a", b"", b"", b"1", 5)

    assert why_not([put, read]) is None
    assert "should have answered" in why_not([put, read._replace(answer=None)])
    assert "had been answered" in why_not([put, read._replace(answer=None, revision=4)])
    assert "had been answered" in why_not([read, put._replace(began=4, ended=5)])
    assert "one revision" in why_not([put, put])


@pytest.mark.parametrize("what", ["put", "remove", "swap", "make"])
def test_each_kind_of_invoke_is_what_its_model_says(make_world, what):
    """So that the check above compares like with like."""
    meta = MetaStorage(make_world().engine)
    for before in (None, b"0", b"1"):
        state = {} if before is None else {"a": before}
        meta.invoke_all([do(Remove("a") if before is None else Put("a", before))])
        answers = meta.invoke_all([statement(what, "a", b"0", b"2")])
        done = Done(0, 1, what, "a", b"0", b"2", answers.value, answers.revision)

        assert expected(state, done) == answers.value
        assert meta.get("a").value == state.get("a")
