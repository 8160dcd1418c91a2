"""What the pages keep between questions, and for how long."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from databuild_dagster.web import state as module
from databuild_dagster.web.state import StateClosed, TooManyActions, TooManyQuestions
from tests.support.pages_world import PagesWorld


@pytest.fixture(autouse=True)
def every_answer_is_costly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHEAP_SECONDS", 0.0)


@pytest.fixture
def nothing_is_young(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answer is computed again when the log has moved."""
    monkeypatch.setattr(module, "KEEP_SECONDS", 0.0)
    monkeypatch.setattr(module, "KEEP_FACTOR", 0.0)


def test_a_kept_answer_holds_until_the_log_moves_and_it_is_too_old(
    world: PagesWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = world.state_behind_pages()
    asked: list[int] = []

    def question() -> int:
        asked.append(world.seq)
        return world.seq

    first = state.kept("answer", question)
    world.want("orders@2023-01-20")
    young = state.kept("answer", question)
    monkeypatch.setattr(module, "KEEP_SECONDS", 0.0)
    monkeypatch.setattr(module, "KEEP_FACTOR", 0.0)
    monkeypatch.setattr(module, "MAX_AGE_SECONDS", 0.0)
    state.kept("other", question)
    world.want("orders@2023-01-21")
    old = state.kept("other", question)

    assert (first, young, old) == (asked[0], asked[0], world.seq)
    assert len(asked) == 3


def test_an_answer_that_costs_little_is_of_now(world: PagesWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    state = world.state_behind_pages()
    monkeypatch.setattr(module, "CHEAP_SECONDS", 600.0)
    state.kept("answer", lambda: world.seq)

    world.want("orders@2023-01-19")

    assert state.kept("answer", lambda: world.seq) == world.seq


@pytest.mark.usefixtures("nothing_is_young")
def test_an_old_answer_is_given_while_a_thread_computes_it_again(world: PagesWorld) -> None:
    state = world.state_behind_pages()
    threads: list[int] = []
    may_answer = threading.Event()

    def question() -> int:
        threads.append(threading.get_ident())
        assert len(threads) == 1 or may_answer.wait(250)
        return world.seq

    first = state.kept("answer", question)
    world.want("orders@2023-01-22")
    meanwhile = [state.kept("answer", question) for _ in range(3)]
    for _ in until(lambda: len(threads) == 2):
        pass
    may_answer.set()
    state.close()

    assert meanwhile == [first] * 3
    assert (len(threads), len(set(threads))) == (2, 2)
    assert state.kept("answer", question) == world.seq > first


@pytest.mark.usefixtures("nothing_is_young")
def test_an_answer_that_cannot_be_computed_again_is_tried_by_the_next_question(world: PagesWorld) -> None:
    state = world.state_behind_pages()
    n_asked = 0

    def question() -> int:
        nonlocal n_asked
        n_asked += 1
        if n_asked == 2:
            raise LookupError("the store is away")
        return n_asked

    first = state.kept("answer", question)
    world.want("orders@2023-01-23")
    old = state.kept("answer", question)
    renewed = [state.kept("answer", question) for _ in until(lambda: n_asked >= 3)]

    assert (first, old, renewed[0]) == (1, 1, 1)
    state.close()
    assert state.kept("answer", question) == 3


def until(is_so: Callable[[], bool]) -> Iterator[None]:
    """Some more tries, until something is so."""
    deadline, pause = time.monotonic() + 250, threading.Event()
    while not is_so():
        assert time.monotonic() < deadline
        yield
        pause.wait(0.01)


def test_events_are_the_same_whether_kept_or_read(world: PagesWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_EVENTS", 5)
    whole = world.state_behind_pages().events(0, 1_000)
    state = world.state_behind_pages()
    stretches = [(after, most) for after in range(0, world.seq, 3) for most in (1, 4, 9)] * 4

    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda stretch: state.events(*stretch), stretches))

    assert [event.seq for event in whole] == list(range(1, world.seq + 1))
    assert answers == [whole[after : after + most] for after, most in stretches]


def test_one_question_too_many_is_refused_and_waits_for_nothing(
    world: PagesWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_ASKED", 1)
    state = world.state_behind_pages()
    may_end = threading.Event()

    async def story() -> bool:
        first = asyncio.ensure_future(state.ask(lambda: may_end.wait(250)))
        await asyncio.sleep(0)
        with pytest.raises(TooManyQuestions, match="1 questions"):
            await state.ask(lambda: None)
        may_end.set()
        return await first

    assert asyncio.run(story())
    assert asyncio.run(state.ask(lambda: "again")) == "again"


def test_actions_that_wait_keep_no_page_from_its_answer(world: PagesWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process has the lock of writers, or Spark starts."""
    monkeypatch.setattr(module, "MAX_ACTIONS", 3)
    state = world.state_behind_pages()
    may_end = threading.Event()

    async def story() -> list[bool]:
        actions = [asyncio.ensure_future(state.act(lambda: may_end.wait(250))) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(TooManyActions, match="3 actions wait"):
            await state.act(lambda: None)
        answers = await asyncio.gather(*(state.ask(lambda: True) for _ in range(20)))
        may_end.set()
        return [*answers, *await asyncio.gather(*actions)]

    assert asyncio.run(asyncio.wait_for(story(), 60)) == [True] * 23
    state.close()


@pytest.mark.usefixtures("nothing_is_young")
def test_a_closed_state_names_that_the_server_is_ending(world: PagesWorld) -> None:
    state = world.state_behind_pages()
    kept = state.kept("answer", lambda: "kept")
    world.want("orders@2023-01-24")

    state.close()

    with pytest.raises(StateClosed, match="`databuild dev --no-daemon`"):
        asyncio.run(state.ask(lambda: "answer"))
    with pytest.raises(StateClosed):
        state.soon("slow", lambda: "answer")
    assert state.kept("answer", lambda: "again") == kept


def test_a_question_that_waits_is_refused_when_the_server_is_asked_to_end(
    world: PagesWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_AT_ONCE", 1)
    state = world.state_behind_pages()
    has_begun, may_end = threading.Event(), threading.Event()

    def question() -> str:
        has_begun.set()
        assert may_end.wait(250)
        return "answer"

    async def story() -> str:
        first = asyncio.ensure_future(state.ask(question))
        second = asyncio.ensure_future(state.ask(lambda: "another"))
        assert await asyncio.to_thread(has_begun.wait, 60)

        await asyncio.to_thread(module.end_all_states)

        with pytest.raises(StateClosed):
            await second
        with pytest.raises(StateClosed):
            await state.act(lambda: "done")
        may_end.set()
        return await first

    assert asyncio.run(asyncio.wait_for(story(), 120)) == "answer"


def test_a_question_whose_client_is_gone_is_canceled_also_while_the_server_ends(
    world: PagesWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_AT_ONCE", 1)
    state = world.state_behind_pages()
    has_begun, may_end = threading.Event(), threading.Event()

    def question() -> bool:
        has_begun.set()
        return may_end.wait(250)

    async def story() -> None:
        first = asyncio.ensure_future(state.ask(question))
        second = asyncio.ensure_future(state.ask(lambda: True))
        assert await asyncio.to_thread(has_begun.wait, 60)

        state.end()
        second.cancel()

        with pytest.raises(asyncio.CancelledError):
            await second
        may_end.set()
        assert await first

    asyncio.run(asyncio.wait_for(story(), 120))


def test_a_slow_question_that_waits_while_the_server_ends_is_refused(world: PagesWorld) -> None:
    state = world.state_behind_pages()
    may_end = threading.Event()

    async def story() -> None:
        await state.ask(lambda: state.soon("first", lambda: may_end.wait(250)))
        await state.ask(lambda: state.soon("second", lambda: "counted"))

        state.end()
        await asyncio.sleep(0)

        for _ in range(2):
            with pytest.raises(StateClosed):
                state.soon("second", lambda: "counted")
        may_end.set()

    asyncio.run(asyncio.wait_for(story(), 120))
    state.close()


@pytest.mark.usefixtures("nothing_is_young")
def test_a_kept_answer_is_given_and_renewed_later_when_the_system_refuses_a_thread(
    world: PagesWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = world.state_behind_pages()
    first = state.kept("answer", lambda: world.seq)
    world.want("orders@2023-01-25")

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        meanwhile = state.kept("answer", lambda: world.seq)
    for _ in until(lambda: state.kept("answer", lambda: world.seq) == world.seq):
        pass
    state.close()

    assert meanwhile == first < world.seq


def test_a_slow_answer_that_fails_is_not_waited_for_without_end(world: PagesWorld) -> None:
    state = world.state_behind_pages()
    may_end = threading.Event()

    def question() -> str:
        assert may_end.wait(250)
        raise ValueError("no count")

    first = state.soon("slow", question)
    may_end.set()
    state._looking["slow"].exception(250)
    may_end.clear()

    assert first is None
    with pytest.raises(ValueError, match="no count"):
        state.soon("slow", question)
    state.soon("slow", lambda: "counted")
    assert state._looking["slow"].result(250) == "counted"
    state.close()


def test_a_slow_answer_is_none_until_it_is_there_and_stays_meanwhile(world: PagesWorld) -> None:
    state = world.state_behind_pages()
    may_end = threading.Event()

    def question() -> str:
        assert may_end.wait(250)
        return "counted"

    first = state.soon("slow", question)
    may_end.set()
    state.soon("slow", question)
    state._looking["slow"].result(250)
    second = state.soon("slow", question)

    assert (first, second) == (None, "counted")
    state.close()
