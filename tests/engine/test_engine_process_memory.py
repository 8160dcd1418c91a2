"""Objects that a process remembers are made once, and can be forgotten."""

from __future__ import annotations

from databuild_dagster.engine.engine import ProcessMemory


def test_a_value_is_made_when_it_is_first_asked_for_and_kept():
    memory = ProcessMemory()
    seen = memory.of("seen", list)
    seen.append("a")

    assert memory.of("seen", list) == ["a"]
    assert memory.of("other", list) == []


def test_a_value_may_ask_for_another_while_it_is_made():
    memory = ProcessMemory()

    assert memory.of("outer", lambda: memory.of("inner", lambda: 1) + 1) == 2


def test_after_forgetting_a_process_begins_as_at_first():
    memory = ProcessMemory()
    memory.put("place", 7)

    memory.forget()

    assert memory.of("place", lambda: 0) == 0
