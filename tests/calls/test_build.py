"""`build` in a script: what it takes, what it returns, and how it is interrupted (rule 8.9)."""

import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext

import pandas as pd
import pytest

from databuild_dagster import BuildFailed, BuildInterrupted, BuildTimedOut, build, build_definitions, databuild_asset
from databuild_dagster.bindings.registry.instance import engine_for, open_instance
from databuild_dagster.calls.place import opened
from databuild_dagster.model.errors import InvalidRequest, UnknownAsset
from databuild_dagster.model.selections import InvalidSelection
from tests.support.project import MAX_SECONDS, Project

DAY, NEXT = "orders@2024-01-30", "orders@2024-01-31"


@databuild_asset
def shops() -> pd.DataFrame:
    return pd.DataFrame({"shop": ["<b>north"]})


@databuild_asset
def broken() -> pd.DataFrame:
    raise ValueError("no <b>shop</b>")


def while_held(project: Project, key: str, act: Callable[[], object], call: Callable[[], object]) -> None:
    """Call here; a thread acts once the key is being built, and releases it."""

    def act_and_release() -> None:
        try:
            project.wait_until_held(key)
            act()
        finally:
            project.release(key)

    project.hold(key)
    with ThreadPoolExecutor(1) as threads:
        acting = threads.submit(act_and_release)
        try:
            call()
        finally:
            acting.result()


def interrupt() -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def test_a_build_of_a_range_returns_a_result_that_one_looks_at(inside: Project) -> None:
    result = build("orders@2024-01-29..2024-01-31").check()

    assert (result.live, result.reused, result.succeeded, result.not_live) == (3, 0, 3, [])
    assert repr(result).startswith("3 of 3 refs live in ")
    assert repr(build([DAY, NEXT])).startswith("2 of 2 refs live (2 before); nothing to build; ")
    assert inside.is_sound()


def test_a_build_takes_definitions_as_an_object_and_an_instance(project: Project) -> None:
    with open_instance(project.home) as instance:
        result = build("shops", definitions=build_definitions([shops], location="shop"), instance=instance)

    assert result.live == 1


@pytest.mark.parametrize(
    ("refs", "outcome"),
    [("shops", nullcontext()), ("no_such_asset@*", pytest.raises(UnknownAsset))],
    ids=["built", "refused"],
)
def test_a_build_of_several_launches_leaves_the_instance_as_it_was(
    project: Project, refs: str, outcome: AbstractContextManager[object]
) -> None:
    with open_instance(project.home) as instance:
        before = set(vars(instance)), set(vars(instance.compute_log_manager))

        with outcome:
            build(refs, definitions=build_definitions([shops], location="shop"), instance=instance, at_once=2)

        assert "get_yaml_python_handlers" not in vars(instance).keys() - before[0]
        assert "capture_logs" not in vars(instance.compute_log_manager).keys() - before[1]


def test_a_build_takes_definitions_as_a_file_and_a_home(project: Project) -> None:
    result = build("revenue_of_january", definitions=project.folder / "definitions.py", home=project.home)

    assert result.live == 1


def test_a_failure_is_no_error_until_the_result_is_checked(inside: Project) -> None:
    result = build("broken", definitions=build_definitions([broken], location="shop"))

    assert repr(result).splitlines()[1].split() == ["ref", "state", "why"]
    assert "<td>ValueError: no &lt;b&gt;shop&lt;/b&gt;</td>" in result._repr_html_()
    with pytest.raises(BuildFailed) as raised:
        result.check()
    assert (raised.value.facts["ref"], raised.value.facts["why"]) == ("broken", "ValueError: no <b>shop</b>")


@pytest.mark.parametrize(
    ("refs", "options", "error"),
    [
        ("order@2024-01-30", {}, UnknownAsset),
        ("orders@2025-01-01..2025-01-02", {}, InvalidSelection),
        ([], {}, InvalidRequest),
        (DAY, {"only": "wrong"}, InvalidRequest),
        (shops, {}, InvalidRequest),
        ([3], {}, InvalidRequest),
        (DAY, {"at_once": 0}, InvalidRequest),
        (DAY, {"timeout_seconds": -1}, InvalidRequest),
    ],
)
def test_a_refused_build_records_no_want(inside: Project, refs, options, error) -> None:
    with pytest.raises(error):
        build(refs, **options)

    assert inside.ask("want", "list", "--all") == []


def test_an_interrupt_cleans_up_and_a_second_build_works(inside: Project) -> None:
    handler = signal.getsignal(signal.SIGINT)

    with pytest.raises(BuildInterrupted) as raised:
        while_held(inside, "2024-01-30", interrupt, lambda: build(DAY))

    result = raised.value.result
    assert (result.interrupted, result.live, result.canceled) == (True, 0, 1)
    assert signal.getsignal(signal.SIGINT) is handler
    assert inside.queries.job_runs.newest(open_only=True) == []
    assert inside.ask("want", "list") == []
    assert build(DAY).live == 1
    assert inside.is_sound()


@pytest.mark.parametrize("handler", [signal.default_int_handler, signal.SIG_IGN], ids=["in front", "in the background"])
def test_a_time_out_ends_a_build_and_keeps_its_wants(inside: Project, handler: signal.Handlers) -> None:
    inside.hold("2024-01-30")
    signal.signal(signal.SIGINT, handler)

    # The time-out may come before the build has begun.
    result = build(DAY, timeout_seconds=3)

    assert signal.getsignal(signal.SIGINT) is handler
    assert [want["state"] for want in inside.ask("want", "list")] == ["Idle"]
    with pytest.raises(BuildTimedOut):
        result.check()


def test_a_build_works_in_another_thread_where_it_takes_no_time_out(inside: Project) -> None:
    def in_thread(**options: float) -> int:
        return build(DAY, **options).live

    with ThreadPoolExecutor(1) as threads:
        refused = threads.submit(in_thread, timeout_seconds=9.0).exception(MAX_SECONDS)
        live = threads.submit(in_thread).result(MAX_SECONDS)

    assert isinstance(refused, InvalidRequest)
    assert live == 1


def test_builds_of_several_threads_run_one_after_another(inside: Project) -> None:
    with ThreadPoolExecutor(2) as threads:
        building = [threads.submit(build, ref) for ref in (DAY, NEXT)]

    assert [built.result().live for built in building] == [1, 1]
    first, second = sorted(inside.queries.job_runs.newest(), key=lambda job_run: job_run.started_at or 0.0)
    assert first.ended_at is not None
    assert second.started_at is not None
    assert first.ended_at <= second.started_at
    assert inside.is_sound()


def test_a_call_that_ends_leaves_the_engine_to_calls_in_other_threads(project: Project) -> None:
    with opened(None, project.home) as outer:
        with opened(None, project.home) as inner:
            assert inner.engine is outer.engine

        assert outer.engine.queries.events.head().seq == 0
        assert engine_for(outer.instance) is outer.engine

    with opened(None, project.home) as later:
        assert later.engine is not outer.engine
