"""Many processes that write to one store at once: what they do together, how fairly, and how long the worst of them waits."""

from __future__ import annotations

import multiprocessing
import statistics
import time
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from typing import NamedTuple

from bench.engine.filling import lease, name_of, opened, success
from databuild_dagster.model.refs import Ref

#: Keys that one process may use.
KEYS = 1_000_000
#: Turns of one writer and of many.
ROUNDS = 3


class Written(NamedTuple):
    """What one process did."""

    commands_per_second: float
    worst_seconds: float


class Together(NamedTuple):
    """What several processes did at the same time."""

    commands_per_second: float
    #: The slowest against the fastest.
    fairness: float
    worst_seconds: float


def _write(url: str, first: int, seconds: float, ready: Barrier, answers: Queue[Written]) -> None:
    engine = opened(url)
    worst, n = 0.0, 0
    handle = engine.handle

    def timed(*args: object, **kwargs: object) -> object:
        nonlocal worst, n
        began = time.perf_counter()
        result = handle(*args, **kwargs)  # type: ignore[arg-type]
        worst = max(worst, time.perf_counter() - began)
        n += 1
        return result

    engine.handle = timed  # type: ignore[method-assign, assignment]
    ready.wait()
    began = time.perf_counter()
    key = first
    while (taken := time.perf_counter() - began) < seconds:
        engine.handle(success(lease(engine, [Ref(f"a@{name_of(key)}")])))
        key += 1
    answers.put(Written(n / taken, worst))


def written(url: str, n_processes: int, seconds: float, first: int) -> Together:
    """Wants, buffers, starts and successes of one ref, each process with refs of its own, for some seconds."""
    context = multiprocessing.get_context("spawn")
    answers: Queue[Written] = context.Queue()
    ready = context.Barrier(n_processes)
    processes = [
        context.Process(target=_write, args=(url, first + number * KEYS, seconds, ready, answers))
        for number in range(n_processes)
    ]
    for process in processes:
        process.start()
    found = [answers.get(timeout=60 + 10 * seconds) for _ in processes]
    for process in processes:
        process.join()
    rates = [item.commands_per_second for item in found]
    return Together(sum(rates), min(rates) / max(rates), max(item.worst_seconds for item in found))


def one_and_many(url: str, n_processes: int, seconds: float, first: int) -> tuple[float, Together]:
    """Commands per second of one writer, and what many do: in turns, the medians."""
    alone, many = [], []
    for _ in range(ROUNDS):
        alone.append(written(url, 1, seconds, first).commands_per_second)
        many.append(written(url, n_processes, seconds, first + KEYS))
        first += (n_processes + 1) * KEYS
    return statistics.median(alone), Together(*(statistics.median(values) for values in zip(*many, strict=True)))
