"""Objects that a process remembers are made once, and can be forgotten."""

from __future__ import annotations

from databuild_dagster.engine.engine import ProcessMemory


def test_after_forgetting_a_process_begins_as_at_first():
    memory = ProcessMemory()
    memory.put("place", 7)

    memory.forget()

    assert memory.of("place", lambda: 0) == 0
