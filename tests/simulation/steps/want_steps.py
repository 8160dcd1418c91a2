"""Wants are recorded, canceled and expire, and miss their SLA."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from databuild_dagster.model import commands as c
from databuild_dagster.model.fold.demands import DERIVATIVE
from tests.simulation.naive import wants
from tests.simulation.naive.state import NEVER, OPEN_WANTS, NaiveWant

from .compared import REFS, Compared, some_refs, which

#: Seconds; None for no end.
an_urgency = st.fixed_dictionaries(
    {
        "priority": st.sampled_from([0, 0, 0, 1, 5]),
        "ttl_seconds": st.sampled_from([None, None, 0.0, 5.0, 60.0, 600.0]),
        "sla_seconds": st.sampled_from([None, None, -1.0, 5.0, 90.0]),
        "data_age": st.sampled_from([None, None, 0.0, 30.0]),
    }
)
CALM = {"priority": 0, "ttl_seconds": None, "sla_seconds": None, "data_age": None}


class WantSteps(Compared):
    """Wants are recorded, canceled and expire, and miss their SLA."""

    @rule(refs=some_refs, fail_fast=st.sampled_from([False, False, True]), urgency=an_urgency)
    def want(self, refs, fail_fast=False, urgency=CALM):
        fields = urgency | {"fail_fast": fail_fast}
        if (age := fields.pop("data_age")) is not None:
            fields["data_timestamp"] = self.world.clock.now - age
        recorded = wants.want(self.naive, refs, **fields)
        refusal = None if isinstance(recorded, NaiveWant) else recorded
        outcome = self.both(c.CreateWants(wants=(refs,), **fields), refusal)
        if outcome is not None:
            self.wants.append((outcome.want_ids[0], recorded))

    @rule(at=which, terminate=st.booleans())
    def cancel(self, at, terminate):
        if self.wants:
            want_id, want = self.wants[at % len(self.wants)]
            command = c.CancelWants(ids=(want_id,), terminate=terminate)
            self.both(command, wants.cancel(self.naive, want, terminate=terminate))

    @rule(records_late=st.booleans(), expires=st.booleans())
    def a_tick_looks_at_the_clock(self, records_late, expires):
        """Rule 11.1: it records the wants that are late or whose TTL has ended."""
        expiring, late = self.world.queries.wants.overdue(self.world.clock.now, 1000)
        if records_late and late:
            self.world.handle(c.MissSlas(want_ids=tuple(late)))
            for want in wants.late(self.naive):
                want.is_late = True
        if expires and expiring:
            self.world.handle(c.ExpireWants(want_ids=tuple(expiring)))
            wants.expire(self.naive, wants.overdue(self.naive))

    @rule(seconds=st.sampled_from([5.0, 60.0]))
    def a_tick_comes_later(self, seconds):
        self.time_passes(seconds)
        self.a_tick_looks_at_the_clock(True, True)

    @rule(ats=st.lists(which, min_size=1, max_size=3))
    def a_slow_tick_reports_what_has_changed(self, ats):
        """Wants that ended otherwise by now are left out."""
        if named := dict(self.wants[at % len(self.wants)] for at in ats if self.wants):
            late, overdue = wants.late(self.naive), wants.overdue(self.naive)
            self.world.handle(c.MissSlas(want_ids=tuple(named)))
            for want in late:
                want.is_late = want.is_late or want in named.values()
            self.world.handle(c.ExpireWants(want_ids=tuple(named)))
            wants.expire(self.naive, [want for want in overdue if want in named.values()])

    @invariant()
    def their_wants_look_the_same(self):
        views = {view.id: view for view in self.world.queries.wants.newest(most=100_000)}
        for want_id, want in self.wants:
            view = views[want_id]
            assert (view.state, view.sla_missed_at is not None) == (want.state, want.is_late)
        for ref in REFS:
            derived = [want for want in self.naive.wants if want.is_open and want.is_derivative and ref in want.refs]
            urgencies = [(want.priority, want.deadline, want.expires_at) for want in derived]
            seen = [
                (view.priority, _or_never(view.deadline), _or_never(view.expires_at))
                for view in views.values()
                if view.source == DERIVATIVE and view.state in OPEN_WANTS and view.refs == (ref,)
            ]
            assert sorted(seen) == sorted(urgencies)

    @invariant()
    def the_same_wants_are_late(self):
        expiring, late = self.world.queries.wants.overdue(self.world.clock.now, 1000)
        ids = {id(want): want_id for want_id, want in self.wants}
        assert set(late) == {ids.get(id(want)) for want in wants.late(self.naive)}
        overdue = wants.overdue(self.naive)
        assert len(expiring) == len(overdue)
        assert set(expiring) >= {ids[id(want)] for want in overdue if id(want) in ids}


def _or_never(time):
    return NEVER if time is None else time
