"""A seed in, a verdict out: the same for ever."""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from typing import Generic, Protocol, TypeVar

from .members import populate
from .processes import Broken
from .scenario import Scenario, scenario_of
from .stepped import Deck
from .world import World


class Seeded(Protocol):
    """What a story follows from."""

    @property
    def seed(self) -> int: ...


S = TypeVar("S", bound=Seeded)


@dataclass(frozen=True)
class Failure(Generic[S]):
    """What broke, and everything that happened up to then."""

    kind: str
    detail: str
    scenario: S
    incidents: tuple[str, ...]
    story: tuple[str, ...]


@dataclass(frozen=True)
class Result(Generic[S]):
    """What one simulation came to."""

    failure: Failure[S] | None
    n_events: int
    n_steps: int
    n_incidents: int
    #: Of the whole story, so that two can be compared.
    fingerprint: str


def simulate(scenario: Scenario, deck: Deck) -> Result[Scenario]:
    """One storm, and what was wrong when it was over, if anything was."""
    world = World(scenario, deck)
    failure = None
    try:
        populate(world)
        world.storm()
    except Broken as broken:
        failure = _failure(world, broken.kind, str(broken))
    except Exception as error:
        # Only refusals are expected: a process that dies of an error is a finding like any other.
        detail = "".join(traceback.format_exception(error, limit=-3)).rstrip()
        failure = _failure(world, type(error).__name__, detail)
    finally:
        world.scheduler.end()
    scheduler = world.scheduler
    fingerprint = sha256("\n".join(scheduler.story).encode()).hexdigest()
    return Result(failure, len(world.onlooker.log), scheduler.n_steps, len(scheduler.incidents), fingerprint)


def simulate_seed(seed: int, deck: Deck) -> Result[Scenario]:
    return simulate(scenario_of(seed), deck)


@cache
def _deck() -> Deck:
    """This process's."""
    return Deck()


def simulate_seeds(seeds: Iterable[int]) -> list[Result[Scenario]]:
    """One after another, in a process that does nothing else."""
    return [simulate_seed(seed, _deck()) for seed in seeds]


def _failure(world: World, kind: str, detail: str) -> Failure[Scenario]:
    scheduler = world.scheduler
    return Failure(kind, detail, world.scenario, tuple(scheduler.incidents), tuple(scheduler.story))
