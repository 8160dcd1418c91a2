"""The refs that an event touches: it may change their canonical instance, or the state of their canonical instance.

Some events name refs by a job run, a taint or an instance, and so does the answer: only the store knows the refs. A ref that
waits for inputs, or failed for them, is not touched by events of its inputs. `assert_never` demands a line for each new type.
"""

from typing import Final, NamedTuple, assert_never, cast

from databuild_dagster.model import events as e
from databuild_dagster.model.refs import Ref

#: Facts that change no canonical instance, nor its state.
_OfRequests = (
    e.WantCreated
    | e.WantKept
    | e.WantCanceled
    | e.WantExpired
    | e.WantSlaMissed
    | e.PartitionDelegated
    | e.DelegationGivenUp
)
_OfOthers = (
    e.JobRunStarted
    | e.JobRunSkipped
    | e.PartitionsPaused
    | e.PartitionsResumed
    | e.ArcFired
    | e.DatasetRegistered
    | e.SetAsideChanged
    | e.MetaInvoked
    | e.MetaCompacted
)
_Untouching = _OfRequests | _OfOthers
#: The stored names of all other facts.
TOUCHING: Final = e.names_of(*(kind for kind in e.EVENT_TYPES if not issubclass(kind, _Untouching)))


class MadeInstance(NamedTuple):
    """An instance that became live."""

    job_run_id: str
    ref: Ref
    #: None for data in a place that is not ours.
    manifest: e.ManifestFact | None


class TouchedRefs(NamedTuple):
    """The refs that an event touches, as it names them."""

    refs: frozenset[Ref] = frozenset()
    #: Their outputs are touched.
    job_runs: tuple[str, ...] = ()
    #: The refs of the canonical instances that carry, or carried, the taint are touched.
    taint_id: str | None = None
    #: Instances whose refs are touched.
    uuids: tuple[str, ...] = ()
    #: Instances that readers see from this event on (rule 10.3).
    published: tuple[MadeInstance, ...] = ()


def touched_refs(event: e.Event) -> TouchedRefs:
    """The refs that an event touches. Total over the types of events (rule 3.6)."""
    fact = cast(e.AnyFact, event.fact)
    if isinstance(fact, _Untouching):
        return TouchedRefs()
    match fact:
        case e.JobRunBuffered(runs=runs):
            return TouchedRefs(frozenset(ref for run in runs for ref in run.refs))
        case e.JobRunSucceeded(runs=successes):
            made = tuple(
                MadeInstance(run.job_run_id, output.ref, output.manifest) for run in successes for output in run.outputs
            )
            return TouchedRefs(frozenset(output.ref for output in made), published=made)
        case e.LotArrived(arrivals=arrivals):
            # Readers saw the rows of a compaction before.
            made = tuple(MadeInstance(lot.job_run_id, lot.ref, lot.manifest) for lot in arrivals if lot.same_as is None)
            return TouchedRefs(frozenset(lot.ref for lot in arrivals), published=made)
        case e.InstancesBorrowed(births=births):
            # Published in the base, and in no table or copy of the environment.
            return TouchedRefs(frozenset(birth.ref for birth in births))
        case e.InstancesPromoted(births=births, returns=returns):
            made = tuple(MadeInstance(birth.job_run_id, birth.ref, birth.manifest) for birth in births)
            made += tuple(MadeInstance(one.job_run_id, one.ref, one.manifest) for one in returns)
            return TouchedRefs(frozenset(one.ref for one in made), published=made)
        case e.JobRunDepMissed(misses=misses, cycles=cycles):
            before = (ref for miss in misses for impact in miss.impacted for ref in impact.cycle)
            return TouchedRefs(
                frozenset(before if cycles is None else cycles), job_runs=tuple(miss.job_run_id for miss in misses)
            )
        case e.JobRunFailed(failures=failures) | e.JobRunLost(failures=failures):
            return TouchedRefs(job_runs=tuple(failure.job_run_id for failure in failures))
        case e.JobRunCanceled(job_run_ids=job_run_ids):
            return TouchedRefs(job_runs=job_run_ids)
        case e.TaintCreated(refs=refs, taint_id=taint_id):
            return TouchedRefs(frozenset(refs), taint_id=taint_id)
        case e.TaintCanceled(taint_id=taint_id):
            return TouchedRefs(taint_id=taint_id)
        case e.CanonicalReverted(ref=ref):
            return TouchedRefs(frozenset([ref]))
        case e.InstancesReturned(returns=returns):
            # News for what follows the ref: it saw the instance between.
            made = tuple(MadeInstance(one.job_run_id, one.ref, one.manifest) for one in returns)
            return TouchedRefs(frozenset(one.ref for one in returns), published=made)
        case e.ManifestRemoved(uuids=uuids) | e.RemovalFinished(uuids=uuids):
            return TouchedRefs(uuids=uuids)
        case _:
            assert_never(fact)
