"""Commands and events as lines of a story: who does what to which refs, without the ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from databuild_dagster.model import commands as c
from databuild_dagster.model import events as e
from databuild_dagster.model.datasets import DatasetSpec

#: The refs of a job run, by its id.
RefsOf = Callable[[str], Iterable[str]]


def said(command: object, refs_of: RefsOf) -> str:
    """What a command asks for."""
    name = type(command).__name__
    match command:
        case c.CreateWants(wants=wants, ttl_seconds=ttl, rebuild=rebuild):
            until = "" if ttl is None else f", within {ttl:.0f} s"
            return f"{name}({'; '.join(map(_some, wants))}{until}{', rebuild' if rebuild else ''})"
        case c.BufferLaunch(runs=runs) | c.ClaimRefs(runs=runs):
            return f"{name}({'; '.join(_some(run.refs) for run in runs)})"
        case c.BufferMissed(misses=misses) | c.MissDeps(misses=misses):
            return f"{name}({'; '.join(_missed(miss) for miss in misses)})"
        case c.SucceedJobRuns(runs=runs):
            return f"{name}({'; '.join(_some(refs_of(run.job_run_id)) for run in runs)})"
        case c.FailJobRuns(failures=failures):
            return (
                f"{name}({'; '.join(f'{_some(refs_of(failure.job_run_id))}, {failure.kind}' for failure in failures)})"
            )
        case c.CancelJobRuns(job_run_ids=ids):
            return f"{name}({'; '.join(_some(refs_of(item)) for item in ids)})"
        case c.LoseLaunches(reason=reason) | c.GiveUpDelegations(reason=reason):
            return f"{name}({reason})"
        case c.TaintPartitions(refs=refs, uuids=uuids, downstream=downstream):
            what = _some(refs) if refs else f"{len(uuids)} instance"
            return f"{name}({what}{', downstream' if downstream else ''})"
        case c.PausePartitions(refs=refs, until=until, terminate=terminate):
            ends = "" if until is None else ", for a while"
            return f"{name}({_some(refs)}{ends}{', terminate' if terminate else ''})"
        case c.RetryRefs(refs=refs) | c.ResumePartitions(refs=refs):
            return f"{name}({_some(refs)})"
        case c.RevertCanonical(ref=ref):
            return f"{name}({ref})"
        case c.RegisterDatasets(location=location, datasets=datasets):
            return f"{name}({location}: {_some(spec.asset for spec in datasets)})"
        case c.ArriveLots(arrivals=arrivals):
            return f"{name}({'; '.join(f'{arrival.ref} ({arrival.origin})' for arrival in arrivals)})"
    return name


def happened(event: e.Event, refs_of: RefsOf) -> str:
    """What an event says."""
    name = type(event.fact).__name__
    match event.fact:
        case e.WantCreated(wants=wants, source=source):
            what = f"{'; '.join(_some(want.refs) for want in wants)}, by {source}"
        case e.JobRunBuffered(runs=runs):
            what = "; ".join(_some(run.refs) for run in runs)
        case e.JobRunStarted(job_run_ids=ids) | e.JobRunCanceled(job_run_ids=ids):
            what = "; ".join(_some(refs_of(item)) for item in ids)
        case e.JobRunSucceeded(runs=runs):
            what = "; ".join(_some(refs_of(run.job_run_id)) for run in runs)
        case e.JobRunDepMissed(misses=misses):
            what = "; ".join(f"{entry.ref} misses {_some(entry.missing)}" for miss in misses for entry in miss.impacted)
        case e.JobRunFailed(failures=failures) | e.JobRunLost(failures=failures):
            what = "; ".join(f"{_some(refs_of(failure.job_run_id))}: {failure.error}" for failure in failures)
        case e.TaintCreated(refs=refs, downstream=downstream):
            what = f"{_some(refs)}{', downstream' if downstream else ''}"
        case e.PartitionDelegated(delegations=delegations):
            what = "; ".join(f"{delegation.ref} {delegation.kind}" for delegation in delegations)
        case e.LotArrived(arrivals=arrivals):
            what = "; ".join(f"{arrival.ref} ({arrival.origin})" for arrival in arrivals)
        case e.InstancesBorrowed(births=births):
            what = _some([birth.ref for birth in births])
        case e.InstancesReturned(returns=returns):
            what = _some([one.ref for one in returns])
        case e.InstancesPromoted(births=births, returns=returns):
            what = _some([*(birth.ref for birth in births), *(one.ref for one in returns)])
        case e.PartitionsPaused(refs=refs) | e.PartitionsResumed(refs=refs):
            what = _some(refs)
        case e.CanonicalReverted(ref=ref):
            what = ref
        case e.ArcFired(firings=firings):
            what = "; ".join(f"{firing.arc} for {_some(firing.lots) or 'nothing'}" for firing in firings)
        case e.DatasetRegistered(location=location, datasets=datasets, removed=removed):
            what = f"{location}: {_some([*map(_defined, datasets), *(f'without {asset}' for asset in removed)])}"
        case e.MetaInvoked(cleared=cleared, removed=removed, puts=puts):
            what = _some([*puts, *(f"-{key}" for key in removed), *(f"-{prefix}*" for prefix in cleared)])
        case _:
            what = ""
    return f"#{event.seq} {name}({what})"


def _some(refs: Iterable[str]) -> str:
    return ", ".join(refs)


def _missed(miss: c.RunMiss) -> str:
    return "; ".join(f"{ref} misses {_some(missing)}" for ref, missing in miss.impacted.items())


def _defined(spec: DatasetSpec) -> str:
    keys = "" if spec.partitions is None else f" of {spec.partitions:.40}"
    needs = ", ".join(f"{need.asset} ({need.mapping})" for need in spec.inputs)
    return f"{spec.asset}{keys}, version {spec.code_version}" + (f", needs {needs}" if needs else "")
