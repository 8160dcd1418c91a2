"""A ref that would be built is borrowed from the base if nothing differs: code, settings and each input (rule 16.2).

The choice is made for many refs at once. Refs that cannot be borrowed bring their declared inputs, so that a build of one ref borrows
all that its cone reads in a single event.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import msgspec

from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.holders import this_user
from databuild_dagster.engine.ports import Provided
from databuild_dagster.engine.why.code import changed_parts
from databuild_dagster.features.environments.base import Base, base_of, inputs_in
from databuild_dagster.features.environments.following import follow
from databuild_dagster.features.environments.records import OPENING
from databuild_dagster.model.commands import BorrowInstances
from databuild_dagster.model.datasets import CodeSpec, DatasetKind, DatasetSpec
from databuild_dagster.model.errors import EnvironmentMoved
from databuild_dagster.model.events import Birth, InstancesBorrowed, ManifestFact
from databuild_dagster.model.refs import Ref, asset_of, partition_key_of
from databuild_dagster.model.states import LEASED, InstanceState
from databuild_dagster.model.wording import few_of
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.store.queries.instances import InstanceRows

#: Instances of an event.
MAX_BIRTHS: Final = 10_000
#: Choices of a call, each at a later pin.
_MAX_CHOICES = 10
#: Kinds of which only the base has news.
_FROM_OUTSIDE = (DatasetKind.SOURCE, DatasetKind.BOUNDARY)
#: Changed functions that a sentence names.
_MAX_CHANGES = 3


@dataclass
class Choice:
    """What is borrowed for some refs and their inputs, and why the rest is built."""

    #: Inputs before what was built from them.
    births: list[Birth] = field(default_factory=list)
    #: By ref.
    built: dict[Ref, str] = field(default_factory=dict)


def provide(
    engine: Engine, refs: Sequence[Ref], *, is_plan: bool = False, specs: Collection[DatasetSpec] | None = None
) -> Provided:
    """Follow the base, then borrow what can be borrowed of refs that would be built and of the inputs of their builds, for a plan too.

    Raises what `base_of` raises, and for refs what `Base.check_is_open` raises, and `EnvironmentMoved`.
    """
    borrowed: list[Ref] = []
    for _ in range(_MAX_CHOICES):
        base = base_of(engine)
        if base is not None:
            follow(engine, base)
        if base is None or not refs:
            return Provided((), {})
        base.check_is_open(engine.now())
        choice = choose(engine, base, refs)
        # A refresh of another process may have moved the pin: then the base no longer keeps what was chosen.
        with suppress(EnvironmentMoved):
            _record(engine, base, choice.births, borrowed)
            return Provided(borrowed, choice.built)
    assert base is not None, "it had a pin that moved"
    raise EnvironmentMoved(environment=base.name)


PROVIDERS = (provide,)


def borrow_again(engine: Engine, base: Base) -> tuple[list[Ref], dict[Ref, str]]:
    """Borrow again what is borrowed and canonical, where the base had a different instance at the pin.

    Returns the refs with an instance by that, and why others keep an instance that the base did not have at the pin. Raises
    `EnvironmentMoved`.
    """
    seen = [one for one in engine.queries.instances.borrowed() if one.is_canonical]
    held = {one.ref: one.uuid for one in seen if one.state is InstanceState.LIVE}
    looking = _Looking(engine, base, held)
    looking.judge([one.ref for one in seen])
    borrowed: dict[Ref, Canonical] = {}
    for ref in [one.ref for one in seen]:
        if ref not in looking.own and ref not in looking.why_not:
            looking.borrow(ref, borrowed)
    recorded: list[Ref] = []
    _record(engine, base, looking.births(borrowed), recorded, held)
    return recorded, {ref: looking.why_not[ref] for ref in held if ref in looking.why_not}


def _record(
    engine: Engine,
    base: Base,
    births: Sequence[Birth],
    recorded: list[Ref],
    held: Mapping[Ref, str] | None = None,
) -> None:
    """Record instances of the base, also in place of the live ones in `held`, and add the refs that have them by that to `recorded`.

    Raises `EnvironmentMoved` if the pin is not that of `base`.
    """
    for start in range(0, len(births), MAX_BIRTHS):
        some = tuple(births[start : start + MAX_BIRTHS])
        seen = {birth.ref: held[birth.ref] for birth in some if birth.ref in held} if held else {}
        command = BorrowInstances(
            births=some, seen=seen, environment=base.name, opening=OPENING, revision=base.revision
        )
        outcome = engine.handle(command, actor=this_user())
        facts = [event.fact for event in outcome.events]
        recorded += [birth.ref for fact in facts if isinstance(fact, InstancesBorrowed) for birth in fact.births]


def choose(engine: Engine, base: Base, refs: Sequence[Ref]) -> Choice:
    """What is borrowed and what is built so that `refs` are live. Refs that are live or being built are left out."""
    looking = _Looking(engine, base)
    choice = Choice()
    borrowed: dict[Ref, Canonical] = {}
    level, seen = list(dict.fromkeys(refs)), set[Ref]()
    while level:
        seen.update(level)
        looking.judge(level)
        below: dict[Ref, None] = {}
        for ref in level:
            if ref in looking.own:
                continue
            if (why := looking.why_not.get(ref)) is None:
                looking.borrow(ref, borrowed)
            elif (spec := looking.specs.get(asset_of(ref))) is not None:
                choice.built[ref] = why
                below |= dict.fromkeys(engine.catalog.inputs(spec, partition_key_of(ref)))
        level = [ref for ref in below if ref not in seen]
    choice.births = looking.births(borrowed)
    return choice


class _Looking:
    """The verdict on each ref that was looked at, and on the inputs of its instance in the base."""

    def __init__(self, engine: Engine, base: Base, held: Mapping[Ref, str] | None = None) -> None:
        """`held` has live instances that are replaced if the base had different ones at the pin."""
        self._engine, self._base, self._held = engine, base, held or {}
        self.specs = {spec.asset: spec for spec in engine.queries.datasets.all().values()}
        self._why_asset: dict[str, str | None] = {}
        #: The uuid that the environment has: of a live instance, or None of a ref that is being built.
        self.own: dict[Ref, str | None] = {}
        #: The instance of the base.
        self.found: dict[Ref, Canonical] = {}
        self.inputs: dict[str, dict[Ref, str]] = {}
        #: Of instances of the base and of their inputs.
        self._rows: dict[str, InstanceRows] = {}
        self.why_not: dict[Ref, str] = {}
        self._users: dict[Ref, list[tuple[Ref, str]]] = defaultdict(list)

    def judge(self, refs: Sequence[Ref]) -> None:
        """Look at refs and at all instances that the base built theirs from, then refuse what has a different input."""
        level = [ref for ref in refs if not self._is_known(ref)]
        new: list[Ref] = []
        while level:
            new += level
            self._look(level)
            below = dict.fromkeys(
                used for ref in level if ref in self.found for used in self.inputs.get(str(self.found[ref].uuid), {})
            )
            level = [ref for ref in below if not self._is_known(ref)]
        refused = [ref for ref in new if ref in self.why_not]
        for ref in new:
            for used, uuid in self.inputs.get(str(self.found[ref].uuid), {}).items() if ref in self.found else ():
                self._users[used].append((ref, uuid))
                if not self._is_equal(self._uuid_of(used), uuid) and ref not in self.why_not:
                    self.why_not[ref] = self._for_want_of(used)
                    refused.append(ref)
        while refused:
            cause = refused.pop()
            for user, uuid in self._users[cause]:
                if user not in self.why_not and not self._is_equal(self._held.get(cause), uuid):
                    self.why_not[user] = self._for_want_of(cause)
                    refused.append(user)

    def borrow(self, ref: Ref, borrowed: dict[Ref, Canonical]) -> None:
        """Add the instance of a ref, and before it all that it was built from: taints and changed code reach it by its lineage."""
        waiting = [(ref, False)]
        while waiting:
            one, has_inputs = waiting.pop()
            if one in borrowed or one in self.own or one in self.why_not:
                continue
            if has_inputs:
                borrowed[one] = self.found[one]
                continue
            waiting.append((one, True))
            waiting += [(used, False) for used in self.inputs.get(str(self.found[one].uuid), {})]

    def births(self, borrowed: Mapping[Ref, Canonical]) -> list[Birth]:
        """The instances as the environment records them: each input is the instance of equal rows that it has, or borrows."""
        found = []
        for ref, one in borrowed.items():
            inputs = {used: self._uuid_of(used) or uuid for used, uuid in self.inputs.get(str(one.uuid), {}).items()}
            birth = birth_of(one, self._base.specs.get(asset_of(ref)), inputs, self._rows[str(one.uuid)])
            held = self._held.get(ref)
            found.append(msgspec.structs.replace(birth, same_as=held) if self._is_equal(held, str(one.uuid)) else birth)
        return found

    def _is_equal(self, here: str | None, there: str) -> bool:
        """Whether an instance has the rows of an instance of the base: it is the same, or was compacted, and no row was erased since."""
        if here == there:
            return True
        first, second = self._rows.get(here or ""), self._rows.get(there)
        return (
            first is not None
            and second is not None
            and first.n_rows is not None
            and (first.first, first.n_rows) == (second.first, second.n_rows)
        )

    def _for_want_of(self, used: Ref) -> str:
        has_other = used in self._held or used not in self.why_not
        if has_other and self._uuid_of(used) is not None:
            return f"its input {used} is not the instance that the base read"
        spec = self.specs.get(asset_of(used))
        is_built = spec is not None and spec.kind not in _FROM_OUTSIDE
        return f"its input {used} {'is built here' if is_built else 'cannot be borrowed'}"

    def _is_known(self, ref: Ref) -> bool:
        return ref in self.own or ref in self.found or ref in self.why_not

    def _uuid_of(self, ref: Ref) -> str | None:
        """The instance that the environment has of a ref, or would borrow."""
        if ref in self.own:
            return self.own[ref]
        if ref in self.why_not and ref in self._held:
            return self._held[ref]
        # What is refused later refuses its users itself.
        return self.found[ref].uuid if ref in self.found else None

    def _look(self, refs: Sequence[Ref]) -> None:
        here = self._engine.queries.canonical.of(refs)
        for ref, one in here.items():
            if one.state in LEASED or (one.state is InstanceState.LIVE and self._held.get(ref) != one.uuid):
                self.own[ref] = one.uuid if one.state is InstanceState.LIVE else None
        then = self._base.live([ref for ref in refs if ref not in self.own])
        self.own |= {ref: one.uuid for ref, one in then.items() if self._held.get(ref) == one.uuid}
        asked = [ref for ref in refs if ref not in self.own]
        then = {ref: one for ref, one in then.items() if ref not in self.own}
        uuids = [str(one.uuid) for one in then.values()]
        had = {one.uuid for one in self._engine.queries.instances.named(uuids)}
        self.inputs |= inputs_in(self._base.queries, uuids)
        used = [uuid for user in uuids for uuid in self.inputs.get(user, {}).values()]
        self._rows |= self._base.queries.instances.rows_of(
            {*uuids, *used, *filter(None, map(self._uuid_of, refs)), *self._held_of(refs)}
        )
        for ref in asked:
            if ref in then:
                self.found[ref] = then[ref]
            if (why := self._why_not_asset(asset_of(ref))) is not None:
                self.why_not[ref] = why
            elif ref not in then:
                self.why_not[ref] = "the base had no live instance of it that is good today"
            elif then[ref].uuid in had:
                self.why_not[ref] = "the instance of the base was tainted or replaced here"

    def _held_of(self, refs: Iterable[Ref]) -> list[str]:
        return [self._held[ref] for ref in refs if ref in self._held]

    def _why_not_asset(self, asset: str) -> str | None:
        if asset not in self._why_asset:
            self._why_asset[asset] = why_not_same(self.specs.get(asset), self._base.specs.get(asset))
        return self._why_asset[asset]


def birth_of(one: Canonical, spec: DatasetSpec | None, inputs: dict[Ref, str], rows: InstanceRows) -> Birth:
    """An instance of one log as a different log records it."""
    manifest = None
    if one.manifest_uri is not None and one.manifest_state is not None:
        sizes = (one.files or 0, one.rows or 0, one.bytes or 0)
        manifest = ManifestFact(one.manifest_state, one.manifest_uri, *sizes, rows.content_hash)
    return Birth(
        job_run_id=str(one.job_run),
        job=asset_of(one.ref) if spec is None else spec.job,
        ref=one.ref,
        inputs=inputs,
        code_version=one.code_version,
        code=one.code,
        manifest=manifest,
        origin=one.origin,
        numbers={} if rows.numbers is None else msgspec.json.decode(rows.numbers, type=dict[str, float]),
    )


def why_not_same(here: DatasetSpec | None, there: DatasetSpec | None) -> str | None:
    """Why an instance of an asset in the base is not what this code would build; None if it is (rule 16.2)."""
    if here is None:
        return "no code location here declares it"
    if here.kind in _FROM_OUTSIDE:
        return None
    if there is None:
        return "the base did not have the asset"
    if here.kind is DatasetKind.PLAIN or there.kind is not here.kind:
        return "the files of a plain asset are not known"
    if (here.partitions, here.inputs) != (there.partitions, there.inputs):
        return "its partitions or its inputs are declared differently"
    code, before = here.code or CodeSpec(), there.code or CodeSpec()
    if settings := dict.fromkeys((*code.settings, *before.settings)):
        return f"it is given {few_of(list(settings))}, whose values are not compared"
    if here.code_version is not None or there.code_version is not None:
        return None if here.code_version == there.code_version else "its code_version differs"
    if code.digest is None or before.digest is None:
        unknown = (*code.unknown, *before.unknown)
        return f"its code is unknown{', because ' + few_of(unknown) if unknown else ''}"
    if code.digest == before.digest:
        return None
    changes = [change.words for change in changed_parts(before, code)]
    return few_of(changes, _MAX_CHANGES) if changes else "its code differs"
