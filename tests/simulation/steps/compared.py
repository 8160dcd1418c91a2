"""An engine and the plain model of the rules, and the comparison of all that can be seen of both."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from databuild_dagster.model.commands import RevertCanonical, UntaintPartitions
from databuild_dagster.model.errors import Refused
from databuild_dagster.model.states import InstanceState
from tests.simulation.naive.state import Naive
from tests.support.catalog import dataset
from tests.support.world import World

REFS = tuple("abcde")

some_refs = st.lists(st.sampled_from(REFS), min_size=1, max_size=2, unique=True).map(tuple)
some_outputs = st.lists(st.sampled_from(REFS), min_size=2, max_size=3, unique=True).map(tuple)
a_ref = st.sampled_from(REFS)
which = st.integers(0, 1000)


class Compared(RuleBasedStateMachine):
    """Each command goes to both: both take it, or both refuse it, and afterwards they look the same."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World([dataset(name) for name in REFS])
        self.naive = Naive(REFS)
        self.naive.now = self.world.clock.now
        #: (id, want) of what was asked for.
        self.wants = []
        #: Ref to its instances, oldest first.
        self.uuids = {ref: [] for ref in REFS}
        self.taints = []
        #: Ref to the uuid and the state of its canonical instance at the last look.
        self.looked = {}
        #: A person has canceled a taint, or gone back to an instance, since.
        self.has_person_spoken = False

    def both(self, command, refusal):
        """Both take it, or refuse it by the same error. The outcome, if they take it."""
        try:
            outcome = self.world.handle(command)
        except Refused as refused:
            assert type(refused) is refusal, refused
            return None
        assert refusal is None
        self.has_person_spoken |= isinstance(command, (UntaintPartitions, RevertCanonical))
        return outcome

    def job_run(self, ref):
        """The one that made the canonical instance; any id where there is none."""
        return self.world.canonical(ref).job_run

    @rule(seconds=st.sampled_from([1.0, 5.0, 60.0, 60.0, 8 * 24 * 3600.0]))
    def time_passes(self, seconds):
        self.world.clock.turn(seconds)
        self.naive.now += seconds

    @invariant()
    def they_look_the_same(self):
        states = {ref: row.state for ref, row in self.naive.refs.items()}
        assert self.world.queries.canonical.states(REFS) == states
        assert self.world.due() == self.naive.due()
        for ref, row in self.naive.refs.items():
            needs = self.world.queries.planning.learned_inputs([ref], self.world.clock.now)
            coming = set(filter(self.naive.is_coming, self.naive.learned[ref]))
            assert {need.ref for need in needs} == coming
            if row.cycle:
                reason = f"a cycle of dep misses: {' → '.join((*row.cycle, row.cycle[0]))}"
                assert self.world.canonical(ref).reason == reason
        paused = self.world.queries.planning.paused(REFS, self.world.clock.now)
        assert set(paused) == set(filter(self.naive.is_paused, REFS))

    @invariant()
    def the_same_are_stale(self):
        live = {self.world.uuid(ref): ref for ref, row in self.naive.refs.items() if row.state is InstanceState.LIVE}
        stale = self.world.queries.instances.stale(list(live))
        assert {live[uuid] for uuid in stale} == set(filter(self.naive.is_stale, live.values()))

    @invariant()
    def no_tainted_rows_are_live_without_a_build_or_a_person(self):
        """Rules 4.8, 7.1: an instance that is tainted stays so, whatever equals its rows."""
        found = {ref: (known.uuid, known.state) for ref, known in self.world.queries.canonical.of(REFS).items()}
        if not self.has_person_spoken:
            for ref, (uuid, state) in self.looked.items():
                if state is InstanceState.TAINTED and found[ref][0] == uuid:
                    assert found[ref][1] is InstanceState.TAINTED
        self.looked, self.has_person_spoken = found, False

    def teardown(self):
        assert self.world.check() == []
        self.world.store.close()
