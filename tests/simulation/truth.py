"""Every open want moves, or `explain` names a cause that is true in the world of the simulation (rules 6.12, 11.5).

A row of `SENTENCES` knows a sentence of `explain` by its words, and compares it with what the world itself knows: the
registered definitions, the leases that the onlooker read off the log, the orchestrators that have ticked.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.tick_pass import DEFAULT_LIMITS
from databuild_dagster.engine.why.explain import Cause, explain
from databuild_dagster.model.datasets import DatasetKind
from databuild_dagster.model.errors import InvalidRef
from databuild_dagster.model.machine import Label
from databuild_dagster.model.refs import Ref, asset_of, partition_key_of
from databuild_dagster.model.set_aside import Subject
from databuild_dagster.model.states import FAILING, InstanceState
from databuild_dagster.store.queries.wants import WantFilter, WantView

from .processes import Broken
from .scenario import LIMITS

if TYPE_CHECKING:
    from .world import World

_S = InstanceState


class Motion(Label):
    """The meaning of a sentence for a want that waits for its ref."""

    MOVES = "something happens to the ref by itself"
    BLOCKED = "nothing happens until definitions change, or a location gets an orchestrator"
    FOLLOWS = "the sentences about other refs decide"


class Sentence(NamedTuple):
    """Words of `explain`, what they mean for the want, and whether they are true of a ref; a group holds the refs named."""

    words: re.Pattern[str]
    motion: Motion
    is_true: Callable[[World, str, re.Match[str]], bool]


def _state(*states: InstanceState | None) -> Callable[[World, str, re.Match[str]], bool]:
    return lambda world, ref, words: world.queries.canonical.states([ref])[ref] in states


def _kind(kind: DatasetKind) -> Callable[[World, str, re.Match[str]], bool]:
    return lambda world, ref, words: (
        world.catalog.exists(ref) and world.catalog.datasets[asset_of(Ref(ref))].kind is kind
    )


def _is_gone(world: World, ref: str, words: re.Match[str]) -> bool:
    return not world.catalog.exists(ref)


def _cannot_be_planned(world: World, ref: str, words: re.Match[str]) -> bool:
    """Its partition is gone, or a key of an input has no name, or no place in the order."""
    return _is_gone(world, ref, words) or _inputs_of(world, ref) is None


def _is_due(world: World, ref: str, words: re.Match[str]) -> bool:
    inputs = _inputs_of(world, ref)
    states = world.queries.canonical.states(inputs or ())
    return inputs is not None and world.catalog.exists(ref) and set(states.values()) <= {_S.LIVE}


def _misses(world: World, ref: str, words: re.Match[str]) -> bool:
    named = list(_named(words))
    return bool(named) and set(named) <= set(_inputs_of(world, ref) or ()) and _are_not_live(world, ref, words)


def _are_not_live(world: World, ref: str, words: re.Match[str]) -> bool:
    states = world.queries.canonical.states(list(_named(words)))
    return bool(states) and _S.LIVE not in states.values()


def _have_failed(world: World, ref: str, words: re.Match[str]) -> bool:
    states = world.queries.canonical.states(list(_named(words)))
    return bool(states) and FAILING.issuperset(states.values())


def _has_the_lease(world: World, ref: str, words: re.Match[str]) -> bool:
    return world.onlooker.builds.get(ref) == words[1]


def _backs_off(world: World, ref: str, words: re.Match[str]) -> bool:
    at = world.queries.canonical.of([ref])[ref].retry_at
    return at is not None and at > world.explained.now


def _is_paused(world: World, ref: str, words: re.Match[str]) -> bool:
    return bool(world.queries.planning.paused([Ref(ref)], world.explained.now))


def _is_unwanted(world: World, ref: str, words: re.Match[str]) -> bool:
    return not world.queries.planning.wanted([ref])[ref].n_open_wants


def _are_out(world: World, ref: str, words: re.Match[str]) -> bool:
    return sum(launch.location == words[2] for launch in world.queries.launches.open()) == int(words[1])


def _has_raised(world: World, ref: str, words: re.Match[str]) -> bool:
    """A port of this storm raised it, the definitions gave it when they were asked, or a row was missing."""
    is_damage = world.was_damaged and words[1].startswith(("MissingRow: ", "Contradiction: "))
    return is_damage or words[1] in world.raised | world.catalog.reasons


def _starts(world: World, ref: str, words: re.Match[str]) -> bool:
    """The limit is the orchestrator's, or the default of one that has noted none; and more refs of it are due."""
    location = world.catalog.datasets[asset_of(Ref(ref))].location
    limits = {LIMITS.launches} | (set() if location in world.ticked else {DEFAULT_LIMITS.launches})
    specs = (spec for spec in world.catalog.datasets.values() if spec.location == location)
    n_due = sum(_is_due(world, other, words) for spec in specs for other in world.catalog.refs_of(spec))
    return int(words[1]) in limits and n_due > int(words[1])


def _is_out_of_reach(world: World, ref: str, words: re.Match[str]) -> bool:
    return any(
        aside.kind is Subject.OUTAGE and aside.location == words[1] for aside in world.queries.planning.set_aside()
    )


def _is_expired(world: World, ref: str, words: re.Match[str]) -> bool:
    wants = world.queries.wants.newest(WantFilter(open_only=True, ref=Ref(ref)))
    ends = [inf if want.expires_at is None else want.expires_at for want in wants]
    return bool(ends) and max(ends) <= world.explained.now


def _never(world: World, ref: str, words: re.Match[str]) -> bool:
    return False


def _inputs_of(world: World, ref: str) -> tuple[str, ...] | None:
    """The declared inputs as the world knows them, None if there is no answer."""
    spec = world.catalog.datasets.get(asset_of(Ref(ref)))
    try:
        return None if spec is None else world.catalog.as_now().inputs(spec, partition_key_of(Ref(ref)))
    except InvalidRef:
        return None


def _named(words: re.Match[str]) -> Iterator[str]:
    """The refs of a list such as `few_of` writes it. No key of the simulation has a comma."""
    for ref in re.sub(r" and \d+ more$", "", words["refs"]).split(", "):
        if ref:
            yield ref


def _row(words: str, motion: Motion, is_true: Callable[[World, str, re.Match[str]], bool]) -> Sentence:
    return Sentence(re.compile(words, re.DOTALL), motion, is_true)


_REFS = r"(?P<refs>.*)"
SENTENCES = (
    _row(r"; set aside for now: ", Motion.BLOCKED, _cannot_be_planned),
    _row(r"; nothing can build it any more: ", Motion.BLOCKED, _is_gone),
    # It is tried again later, so it moves unless another sentence blocks it.
    _row(r"set aside for now, since [^ ]+: (.*)$", Motion.MOVES, _has_raised),
    _row(
        r"no orchestrator of location '(.*)' has ticked here",
        Motion.BLOCKED,
        lambda world, ref, words: words[1] not in world.ticked,
    ),
    _row(
        r"the orchestrator of location '(.*)' last ticked at",
        Motion.MOVES,
        lambda world, ref, words: words[1] in world.ticking,
    ),
    _row(r"there is nothing to build", Motion.MOVES, _state(_S.LIVE)),
    _row(r"its lease is held by job run (\S+) ", Motion.MOVES, _has_the_lease),
    _row(
        r"^attempt (\d+) of \d+; the last one failed with: ",
        Motion.MOVES,
        lambda world, ref, words: int(words[1]) > 1 and _state(_S.BUILDING, _S.UPSTREAM_BUILDING)(world, ref, words),
    ),
    _row(r"^it has sent no heartbeat for ", Motion.MOVES, _state(_S.BUILDING)),
    _row(rf"^waits for {_REFS}, as job run \S+ found$", Motion.FOLLOWS, _are_not_live),
    _row(r"^failed in job run ", Motion.FOLLOWS, _state(_S.FAILED)),
    _row(rf"^needs {_REFS}, which failed", Motion.FOLLOWS, _have_failed),
    _row(rf"^needs {_REFS}, whose inputs failed", Motion.FOLLOWS, _have_failed),
    _row(r"^not built: ", Motion.FOLLOWS, _state(_S.UPSTREAM_FAILED)),
    _row(r"; a lot of files from outside", Motion.MOVES, _kind(DatasetKind.BOUNDARY)),
    _row(r"; a source, which no job builds", Motion.MOVES, _kind(DatasetKind.SOURCE)),
    _row(rf"; waiting for its source {_REFS}: its arc wants it", Motion.FOLLOWS, _are_not_live),
    _row(r"; no open want names it", Motion.FOLLOWS, _is_unwanted),
    _row(r"; outside the TTL of its wants", Motion.MOVES, _is_expired),
    _row(r"its backoff ends at ", Motion.MOVES, _backs_off),
    _row(rf"; its last call asked for {_REFS}, which is to be there first", Motion.MOVES, _are_not_live),
    _row(rf"; it misses {_REFS}, which the next tick wants for it", Motion.MOVES, _misses),
    _row(r"`databuild resume .*` ends the pause$", Motion.BLOCKED, _is_paused),
    _row(r"the next tick launches it", Motion.MOVES, _is_due),
    _row(r"^(\d+) launch(?:es)? of location (\S+) (?:is|are) out", Motion.MOVES, _are_out),
    _row(r"^one tick starts (\d+) ", Motion.MOVES, _starts),
    _row(r"is out of reach for (\S+) since ", Motion.MOVES, _is_out_of_reach),
    # No storm has a job with a limit of its own, or that many refs.
    _row(r" may have \d+ out at a time", Motion.MOVES, _never),
    _row(r"^one tick looks at ", Motion.MOVES, _never),
    _row(r"^and \d+ more", Motion.FOLLOWS, _never),
    # The first of several sentences; the others say why.
    _row(r"; wanted since ", Motion.FOLLOWS, _state(None, _S.TAINTED, _S.UP_FOR_RETRY)),
    _row(
        r"^(never built|tainted: |to be tried again|retry at )",
        Motion.FOLLOWS,
        _state(None, _S.TAINTED, _S.UP_FOR_RETRY),
    ),
)


class Answers:
    """What `explain` says about open wants, compared with the world."""

    def __init__(self, engine: Engine, world: World) -> None:
        self._engine = engine
        self._world = world
        self._rng = random.Random(f"explained {world.scenario.seed}")
        #: The refs of wants that wait for a change of definitions, by the last answer.
        self.blocked: set[str] = set()

    @property
    def now(self) -> float:
        return self._engine.now()

    def one(self) -> None:
        """Any open want, in the middle of the storm. Raises `Broken`."""
        wants = self._world.queries.wants.newest(WantFilter(open_only=True))
        if wants:
            self._checked(self._rng.choice(wants))

    def are_blocked(self, wants: Iterable[WantView]) -> bool:
        """Nothing moves for any of these until the definitions change. Raises `Broken`."""
        self.blocked = set()
        for want in wants:
            causes = self._checked(want)
            motions = {motion for cause in causes for motion in [_sentence(cause)[0].motion]}
            if Motion.BLOCKED not in motions or not self._stands(causes):
                return False
            self.blocked.update(cause.ref for cause in causes)
        return True

    def _stands(self, causes: list[Cause]) -> bool:
        """No ref of the want moves by itself. A ref has several sentences, of which one that blocks decides."""
        for _, of_ref in groupby(causes, key=lambda cause: cause.ref):
            motions = {_sentence(cause)[0].motion for cause in of_ref}
            if Motion.MOVES in motions and Motion.BLOCKED not in motions:
                return False
        return True

    def _checked(self, want: WantView) -> list[Cause]:
        causes = list(explain(self._engine, want.id).causes)
        if not causes:
            raise Broken("explain", f"the open want for {', '.join(want.refs)} has no cause")
        for cause in causes:
            sentence, words = _sentence(cause)
            if not sentence.is_true(self._world, cause.ref, words):
                raise Broken("explain", f"{cause.ref}: {cause.why!r} is not true")
        return causes


def _sentence(cause: Cause) -> tuple[Sentence, re.Match[str]]:
    for sentence in SENTENCES:
        if words := sentence.words.search(cause.why):
            return sentence, words
    raise Broken("explain", f"{cause.ref}: no row of SENTENCES knows {cause.why!r}")
