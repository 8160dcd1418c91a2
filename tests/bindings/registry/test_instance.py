"""One engine for each store in a process, until it is closed."""

from __future__ import annotations

from collections.abc import Iterator

import dagster as dg
import pytest

from databuild_dagster.bindings.registry.instance import close_engine, engine_for, store_url
from tests.support.dagster_files import fresh_instance


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with fresh_instance() as instance:
        yield instance
        close_engine(store_url(instance))


def test_a_process_has_one_engine_for_a_store(instance: dg.DagsterInstance) -> None:
    engine = engine_for(instance)
    engine.memory.put("place in the log", 7)

    assert engine_for(instance) is engine
    assert engine_for(instance).memory.of("place in the log", int) == 7


def test_a_closed_engine_is_opened_again_and_remembers_nothing(instance: dg.DagsterInstance) -> None:
    engine = engine_for(instance)
    engine.memory.put("place in the log", 7)

    close_engine(store_url(instance))

    assert engine_for(instance) is not engine
    assert engine_for(instance).memory.of("place in the log", int) == 0


def test_to_close_what_is_not_open_does_nothing(instance: dg.DagsterInstance) -> None:
    close_engine("sqlite:////nowhere/databuild.db")

    assert engine_for(instance).queries.events.head().seq == 0
