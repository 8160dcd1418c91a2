"""What a seed becomes: datasets and what their jobs need, who does what when, and how much goes wrong.

A scenario is data, so that a failing one can be made smaller: by leaving out deeds, orchestrators, kinds of trouble,
or single incidents by their name.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import msgspec

from databuild_dagster.engine.tick_pass import TickLimits
from databuild_dagster.model.datasets import ArcSpec, DatasetKind, DatasetSpec, InputSpec
from databuild_dagster.model.surroundings import PROBED, Surrounding
from databuild_dagster.store.format import PREFIX
from tests.support.catalog import HERE, dataset

from .deploying import DEPLOYS, DYNAMIC, ODD_KEYS, THERE, UNNAMEABLE_KEYS, Definitions
from .processes import Trouble

#: How long trouble lasts, in seconds.
STORM_SECONDS = 180.0
#: Of every orchestrator; low, so that storms reach them.
LIMITS = TickLimits(launches=3, open_launches=4)
KEYS = ("1", "2")

#: What people do, the frequent more often.
USERS = (
    *["want"] * 6,
    *["want several"] * 2,
    *["want a rebuild"] * 2,
    "deploy",
    "cancel a want",
    *["taint"] * 3,
    "taint downstream",
    *["untaint"] * 2,
    *["revert"] * 2,
    *["retry"] * 2,
    "cancel a job run",
    *["pause"] * 2,
    "resume",
    "data arrives",
    "take data away",
)
#: What people do about operations over whole datasets.
OPERATORS = ("validate", "validate", "index", "index", "cancel an operation")
#: What another program removes from the tables: an instance to which its ref points, an instance in the waiting index.
DAMAGES = {
    "an instance is lost": f"""DELETE FROM {PREFIX}instances
        WHERE id = (SELECT canonical_id FROM {PREFIX}refs WHERE state IS NOT NULL ORDER BY last_id DESC LIMIT 1)""",
    "a waiter is lost": f"""DELETE FROM {PREFIX}missing
        WHERE instance_id = (SELECT max(instance_id) FROM {PREFIX}missing WHERE active = 1)""",
}
DOORS = ("by a person", "by a schedule", "by the coordinator", "to rebuild")


@dataclass(frozen=True)
class Deed:
    """Something that one user, or one Dagster run of a user's, does; its number stays when others are left out."""

    number: int
    what: str
    after: float
    #: Refs that it names at the most.
    most: int = 3

    @property
    def name(self) -> str:
        kind = "run by hand" if self.what in DOORS else "user"
        return f"{kind} {self.number}"


#: What senders drop into the landing folder, the frequent more often.
DELIVERIES = (*["a file"] * 4, "the same again", "a copy", "written again")
#: The dataset whose lots are those files.
LANDED = "landed"


@dataclass(frozen=True)
class Delivery:
    """Something that one sender drops; its number stays when others are left out."""

    number: int
    ref: str
    what: str
    after: float


@dataclass(frozen=True)
class Mishaps:
    """What goes wrong outside of the processes, as probabilities."""

    order_lost: float = 0.0
    order_twice: float = 0.0
    #: Dagster refuses to make the run, because of its configuration or resources.
    order_refused: float = 0.0
    transient: float = 0.0
    hard: float = 0.0
    #: A job run takes much longer than a lease.
    slow: float = 0.0
    #: A command is sent again although it was answered.
    said_again: float = 0.0
    #: A call of a port of the engine raises, or takes longer than a lease.
    port_raises: float = 0.0
    port_hangs: float = 0.0


#: The error of a job run that finds something away.
AWAY = "it does not answer"


@dataclass(frozen=True)
class Outage:
    """Spark or the warehouse is away for a while, for all; its number stays when others are left out."""

    number: int
    what: Surrounding
    after: float
    lasts: float


@dataclass(frozen=True)
class Scenario:
    """Everything that a simulation depends on, beside the seed's random numbers."""

    seed: int
    datasets: tuple[DatasetSpec, ...]
    #: What a dataset's job finds out that it needs while it runs; assets of the same keys.
    hidden: dict[str, tuple[str, ...]]
    n_orchestrators: int
    deeds: tuple[Deed, ...]
    trouble: Trouble
    mishaps: Mishaps
    #: Whether orchestrators look for what lost launches had finished.
    adopts: bool = True
    deliveries: tuple[Delivery, ...] = ()
    n_watchers: int = 0
    outages: tuple[Outage, ...] = ()
    #: The keys of the datasets whose keys are added and deleted.
    dynamic: tuple[str, ...] = ()
    muted: frozenset[str] = frozenset()

    def of_location(self, location: str) -> tuple[DatasetSpec, ...]:
        return tuple(spec for spec in self.datasets if spec.location == location)

    @property
    def has_deploys(self) -> bool:
        return any(deed.what in DEPLOYS for deed in self.deeds)

    @property
    def ours(self) -> list[DatasetSpec]:
        return [spec for spec in self.datasets if spec.kind is DatasetKind.OURS]

    @property
    def sources(self) -> list[DatasetSpec]:
        return [spec for spec in self.datasets if spec.kind is DatasetKind.SOURCE]

    @property
    def landed(self) -> list[str]:
        """Refs that come as files."""
        return [ref for spec in self.datasets if spec.kind is DatasetKind.BOUNDARY for ref in self.refs_of(spec)]

    def refs_of(self, spec: DatasetSpec) -> list[str]:
        return Definitions({}, list(self.dynamic)).refs_of(spec)

    @property
    def refs(self) -> list[str]:
        return [ref for spec in self.datasets for ref in self.refs_of(spec)]


def scenario_of(seed: int) -> Scenario:
    """The scenario that a seed stands for; every second one has deploys, names that others chose, and troubled ports."""
    made = _scenario_of(seed)
    rng = random.Random(f"hostile {seed}")
    return _with_outages(made if rng.random() < 0.5 else _hostile(made, rng))


def _with_outages(made: Scenario) -> Scenario:
    """In half of the storms Spark or the warehouse is away, for longer than all attempts of a ref take (rule 6.17)."""
    rng = random.Random(f"outages {made.seed}")
    if rng.random() < 0.5:
        return made
    datasets = tuple(
        msgspec.structs.replace(spec, spark=True) if spec.kind is DatasetKind.OURS and rng.random() < 0.5 else spec
        for spec in made.datasets
    )
    outages = tuple(
        Outage(number, rng.choice(PROBED), rng.uniform(0.0, 0.6) * STORM_SECONDS, rng.uniform(5.0, 120.0))
        for number in range(rng.choice([1, 1, 2]))
    )
    return replace(made, datasets=datasets, outages=outages)


def _hostile(made: Scenario, rng: random.Random) -> Scenario:
    keys, dynamic = _keys(rng)
    shared = {spec.job for spec in made.datasets if spec.job != spec.asset}
    has_two_locations = rng.random() < 0.3
    datasets = []
    for spec in made.datasets:
        if spec.partitions is not None:
            # A landing folder has lots of its own.
            is_landing = spec.kind is DatasetKind.BOUNDARY and keys == DYNAMIC
            spec = msgspec.structs.replace(spec, partitions=",".join(dynamic[:2]) if is_landing else keys)
        is_ours = spec.kind is DatasetKind.OURS and spec.job not in shared
        if has_two_locations and is_ours and rng.random() < 0.5:
            spec = msgspec.structs.replace(spec, location=THERE)
        datasets.append(spec)
    deeds = made.deeds + tuple(
        Deed(len(made.deeds) + at, rng.choice(DEPLOYS), rng.uniform(0, 0.8 * STORM_SECONDS))
        for at in range(rng.randint(0, 5))
    )
    # With numbers of their own, as everything that came later, so that the rest of a seed is what it was.
    of_damage = random.Random(f"damage {made.seed}")
    if of_damage.random() < 0.3:
        what, after = of_damage.choice(sorted(DAMAGES)), of_damage.uniform(0.1, 0.7) * STORM_SECONDS
        deeds += (Deed(len(deeds), what, after),)
    rough = rng.choice([0.0, 0.0, 1.0, 2.0, 10.0])
    mishaps = replace(made.mishaps, port_raises=0.01 * rough * rng.random(), port_hangs=0.001 * rough * rng.random())
    mishaps = replace(mishaps, order_refused=0.03 * rough * random.Random(f"refused {made.seed}").random())
    if not any(spec.location == HERE and spec.kind is DatasetKind.OURS for spec in datasets):
        datasets = [msgspec.structs.replace(spec, location=HERE) for spec in datasets]
    made = replace(made, datasets=tuple(datasets), deeds=deeds, mishaps=mishaps, dynamic=dynamic)
    # The files land for lots that have names.
    lots = made.landed
    deliveries = tuple(replace(item, ref=lots[item.number % len(lots)]) for item in made.deliveries) if lots else ()
    return replace(made, deliveries=deliveries)


def _keys(rng: random.Random) -> tuple[str, tuple[str, ...]]:
    """The partitions of all datasets that have some, and the keys of those that are dynamic."""
    kind = rng.choice(["plain", "odd", "dynamic"])
    if kind == "plain":
        return ",".join(KEYS), KEYS
    odd = tuple(rng.sample(ODD_KEYS, 2))
    if kind == "odd":
        return ",".join(odd), odd
    return DYNAMIC, (*odd, *([rng.choice(UNNAMEABLE_KEYS)] if rng.random() < 0.3 else []))


def _scenario_of(seed: int) -> Scenario:
    rng = random.Random(f"scenario {seed}")
    datasets, hidden = _graph(rng)
    # With numbers of its own, so that everything else of a seed is what it was.
    datasets = _with_arcs(datasets, random.Random(f"arcs {seed}"))
    of_boundary = random.Random(f"boundary {seed}")
    datasets = _with_a_boundary(datasets, of_boundary)
    n_users = rng.randint(1, 10)
    kinds = [rng.choice(USERS) for _ in range(n_users)] + [rng.choice(DOORS) for _ in range(rng.randint(0, 3))]
    deeds = tuple(
        Deed(number, "want" if number == 0 else what, rng.uniform(0, 0.6 * STORM_SECONDS) if number else 0.0)
        for number, what in enumerate(kinds)
    )
    # Some seeds are quiet, so that what needs no trouble is found without any; some are rough.
    rough = rng.choice([0.0, 0.3, 1.0, 1.0, 2.0])
    trouble = Trouble(
        crash=0.003 * rough * rng.random(),
        blackout=0.0004 * rough * rng.random(),
        delay=0.01 * rough * rng.random(),
        freeze=0.002 * rough * rng.random(),
        jump=0.001 * rough * rng.random(),
        skew_seconds=rng.choice([0.0, 1.0, 10.0]) * rough,
    )
    mishaps = Mishaps(
        order_lost=0.1 * rough * rng.random(),
        order_twice=0.1 * rough * rng.random(),
        transient=0.15 * rough * rng.random(),
        hard=0.1 * rough * rng.random(),
        slow=0.1 * rough * rng.random(),
        said_again=0.3 * rng.random(),
    )
    adopts = rng.random() < 0.7
    deeds += _operations(len(deeds), random.Random(f"operations {seed}"))
    deeds += _of_equal_rows(len(deeds), seed)
    made = Scenario(seed, datasets, hidden, rng.choice([1, 2, 2, 3]), deeds, trouble, mishaps, adopts)
    if not made.landed:
        return made
    deliveries = tuple(
        Delivery(
            number,
            of_boundary.choice(made.landed),
            of_boundary.choice(DELIVERIES),
            of_boundary.uniform(0, STORM_SECONDS),
        )
        for number in range(of_boundary.randint(2, 8))
    )
    return replace(made, deliveries=deliveries, n_watchers=of_boundary.choice([1, 2, 2, 3]))


def _operations(first: int, rng: random.Random) -> tuple[Deed, ...]:
    """In some of the storms there are operations, too (rules 9)."""
    if rng.random() < 0.6:
        return ()
    kinds = [rng.choice(OPERATORS) for _ in range(rng.randint(1, 4))]
    return tuple(Deed(first + at, what, rng.uniform(0, 0.8 * STORM_SECONDS)) for at, what in enumerate(kinds))


def _of_equal_rows(first: int, seed: int) -> tuple[Deed, ...]:
    """In one storm of nine, people taint and go back while much is built again with equal rows (rules 4.8, 7)."""
    if seed % 9 != 2:
        return ()
    rng = random.Random(f"equal rows {seed}")
    kinds = [*["want several"] * 2, *["want a rebuild"] * 3, *["taint downstream"] * 5, "untaint", "revert"]
    return tuple(Deed(first + at, what, rng.uniform(0, 0.8 * STORM_SECONDS)) for at, what in enumerate(kinds))


def _graph(rng: random.Random) -> tuple[tuple[DatasetSpec, ...], dict[str, tuple[str, ...]]]:
    """Datasets that need only earlier ones, so that nothing waits for itself."""
    keys = KEYS if rng.random() < 0.3 else ()
    names = [f"n{number}" for number in range(rng.randint(2, 6))]
    datasets: list[DatasetSpec] = []
    hidden: dict[str, tuple[str, ...]] = {}
    for at, name in enumerate(names):
        earlier = names[:at]
        needs = rng.sample(earlier, min(len(earlier), rng.choice([0, 1, 1, 2])))
        hidden[name] = tuple(rng.sample(earlier, min(len(earlier), rng.choice([0, 0, 1, 1]))))
        if at == 0 and rng.random() < 0.25:
            datasets.append(dataset(name, keys=keys, kind=DatasetKind.SOURCE))
            continue
        if rng.random() < 0.1:
            hidden[name] = ()
            datasets.append(dataset(name, *needs, keys=keys, kind=DatasetKind.PLAIN))
            continue
        job = "shared" if rng.random() < 0.3 else None
        datasets.append(dataset(name, *needs, keys=keys, job=job, most=rng.choice([1, 1000])))
    if not any(spec.kind is DatasetKind.OURS for spec in datasets):
        hidden["last"] = ()
        datasets.append(dataset("last", *names[-1:], keys=keys))
    return tuple(datasets), hidden


def _with_arcs(datasets: tuple[DatasetSpec, ...], rng: random.Random) -> tuple[DatasetSpec, ...]:
    """In half of the storms, what is built subscribes to what comes before it, be that an input or not (rule 10.5)."""
    if rng.random() < 0.5:
        return datasets
    found = list(datasets)
    for at, spec in enumerate(datasets):
        earlier = [dataset.asset for dataset in datasets[:at]]
        if spec.kind is DatasetKind.OURS and earlier and rng.random() < 0.6:
            names = rng.sample(earlier, min(len(earlier), rng.choice([1, 1, 2])))
            sources = tuple(InputSpec(asset=name, mapping="same") for name in names)
            arc = ArcSpec(sources, follow_late=rng.random() < 0.5)
            found[at] = msgspec.structs.replace(spec, arc=arc)
    return tuple(found)


def _with_a_boundary(datasets: tuple[DatasetSpec, ...], rng: random.Random) -> tuple[DatasetSpec, ...]:
    """In some storms files land, and are needed, or wake what subscribes to them, or both (rule 10.6)."""
    if rng.random() < 0.6:
        return datasets
    landed = InputSpec(asset=LANDED, mapping="same", param=LANDED)
    found = [
        dataset(
            LANDED,
            keys=(datasets[0].partitions or "").split(",") if datasets[0].partitions else (),
            kind=DatasetKind.BOUNDARY,
        )
    ]
    for spec in datasets:
        if spec.kind is DatasetKind.OURS and rng.random() < 0.5:
            spec = msgspec.structs.replace(spec, inputs=(*spec.inputs, landed))
        if spec.kind is DatasetKind.OURS and rng.random() < 0.5:
            before = spec.arc if isinstance(spec.arc, ArcSpec) else ArcSpec((), follow_late=rng.random() < 0.5)
            spec = msgspec.structs.replace(spec, arc=ArcSpec((*before.sources, landed), follow_late=before.follow_late))
        found.append(spec)
    return tuple(found)
