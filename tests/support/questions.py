"""The SQL questions that a store is asked."""

from __future__ import annotations

from typing import Any

import pytest

from databuild_dagster.store.store import Store


def recorded_questions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A list that grows by the SQL of each question to any store, until the test ends."""
    asked: list[str] = []
    ask = Store.ask

    def ask_and_record(store: Store, sql: str, *given: Any) -> list[Any]:
        asked.append(sql)
        return ask(store, sql, *given)

    monkeypatch.setattr(Store, "ask", ask_and_record)
    return asked
