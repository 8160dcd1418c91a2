"""Partition keys are computed when others exist, and forgotten when no page shows them."""

from __future__ import annotations

from datetime import UTC, datetime

import dagster as dg
import pytest

from databuild_dagster.bindings.registry.registration import partitions_text
from databuild_dagster.calls import calendar_keys
from databuild_dagster.calls.calendar_keys import keys_of, remembered
from databuild_dagster.model.datasets import DatasetSpec

MIDNIGHT = datetime(2024, 1, 2, tzinfo=UTC).timestamp()


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch) -> calendar_keys._Memory:
    memory = calendar_keys._Memory()
    monkeypatch.setattr(calendar_keys, "_memory", memory)
    return memory


def no_instance() -> None:
    """Only dynamic partitions are asked for in Dagster's instance."""


def every_five_minutes() -> DatasetSpec:
    partitions = dg.TimeWindowPartitionsDefinition("2024-01-01", cron_schedule="*/5 * * * *", fmt="%Y-%m-%d")
    return DatasetSpec("ticks", "ticks", "here", partitions=partitions_text(partitions))


def n_computed(dataset: DatasetSpec, *moments: float) -> int:
    computed: list[float] = []
    for now in moments:
        remembered(dataset, no_instance, now, "all", lambda now=now: computed.append(now))  # type: ignore[misc]
    return len(computed)


def test_keys_are_computed_again_when_a_window_has_ended() -> None:
    assert n_computed(every_five_minutes(), MIDNIGHT, MIDNIGHT + 299, MIDNIGHT + 301, MIDNIGHT + 599) == 2


def test_keys_that_dagster_knows_are_asked_for_once_a_minute() -> None:
    dynamic = dg.DynamicPartitionsDefinition(name="shops")
    dataset = DatasetSpec("shops", "shops", "here", partitions=partitions_text(dynamic))

    assert n_computed(dataset, MIDNIGHT, MIDNIGHT + 59, MIDNIGHT + 60) == 2


def test_a_dataset_without_partitions_has_one_key_which_is_none() -> None:
    assert keys_of(DatasetSpec("whole", "whole", "here"), no_instance, MIDNIGHT) == (None,)


def test_keys_are_forgotten_when_no_question_comes_for_them(
    memory: calendar_keys._Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask_for(n: int) -> int:
        for number in range(n):
            remembered(DatasetSpec(f"d{number}", "d", "here"), no_instance, MIDNIGHT, "all", lambda: ())
        return len(memory)

    few = ask_for(5)
    monkeypatch.setattr(calendar_keys, "MAX_REMEMBERED", 3)
    at_most = ask_for(9)
    monkeypatch.setattr(calendar_keys, "FORGET_SECONDS", -1.0)

    assert (few, at_most, ask_for(9)) == (5, 4, 1)
