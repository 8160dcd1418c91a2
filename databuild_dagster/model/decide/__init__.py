"""decide: a command and the state make events, or a refusal. All rules are here (rule 3.3).

Each subject has a file; this file maps commands to their functions.
"""

from collections.abc import Callable
from typing import Any

from databuild_dagster.model import commands as c
from databuild_dagster.model.decide.arcs import fire_arcs
from databuild_dagster.model.decide.borrowing import borrow_instances, follow_base
from databuild_dagster.model.decide.context import Deciding
from databuild_dagster.model.decide.datasets import (
    arrive_lots,
    change_set_aside,
    compact_meta,
    invoke_meta,
    pause_partitions,
    register_datasets,
    replace_files,
    resume_partitions,
)
from databuild_dagster.model.decide.delegations import give_up_delegations
from databuild_dagster.model.decide.job_runs import cancel_job_runs, fail_job_runs, lose_launches, succeed_job_runs
from databuild_dagster.model.decide.launches import buffer_launch, buffer_missed, claim_refs, start_launch
from databuild_dagster.model.decide.misses import miss_deps
from databuild_dagster.model.decide.promoting import promote_instances
from databuild_dagster.model.decide.retries import retry_refs
from databuild_dagster.model.decide.returning import return_instances
from databuild_dagster.model.decide.taints import (
    finish_removals,
    remove_manifests,
    revert_canonical,
    revert_event,
    taint_partitions,
    untaint_partitions,
)
from databuild_dagster.model.decide.wants import cancel_wants, create_wants, expire_wants, miss_slas
from databuild_dagster.model.errors import Refused
from databuild_dagster.model.events import Fact

__all__ = ["Deciding", "decide"]

_DECISIONS: dict[type[c.Command], Callable[[Any, Deciding], list[Fact]]] = {
    c.RegisterDatasets: register_datasets,
    c.CreateWants: create_wants,
    c.CancelWants: cancel_wants,
    c.ExpireWants: expire_wants,
    c.MissSlas: miss_slas,
    c.BufferLaunch: buffer_launch,
    c.BufferMissed: buffer_missed,
    c.StartLaunch: start_launch,
    c.ClaimRefs: claim_refs,
    c.GiveUpDelegations: give_up_delegations,
    c.SucceedJobRuns: succeed_job_runs,
    c.MissDeps: miss_deps,
    c.FailJobRuns: fail_job_runs,
    c.CancelJobRuns: cancel_job_runs,
    c.LoseLaunches: lose_launches,
    c.TaintPartitions: taint_partitions,
    c.UntaintPartitions: untaint_partitions,
    c.RevertCanonical: revert_canonical,
    c.RevertEvent: revert_event,
    c.PausePartitions: pause_partitions,
    c.ResumePartitions: resume_partitions,
    c.RetryRefs: retry_refs,
    c.RemoveManifests: remove_manifests,
    c.FinishRemovals: finish_removals,
    c.FireArcs: fire_arcs,
    c.ArriveLots: arrive_lots,
    c.ReplaceFiles: replace_files,
    c.BorrowInstances: borrow_instances,
    c.FollowBase: follow_base,
    c.ReturnInstances: return_instances,
    c.PromoteInstances: promote_instances,
    c.ChangeSetAside: change_set_aside,
    c.InvokeMeta: invoke_meta,
    c.CompactMeta: compact_meta,
}


def decide(command: c.Command, deciding: Deciding) -> list[Fact]:
    """The events that a command becomes, perhaps none. Raises a subclass of `Refused`; `Unanswered` precedes any refusal."""
    try:
        facts = _DECISIONS[type(command)](command, deciding)
    except Refused:
        # An assumed answer may have led here.
        deciding.catalog.require()
        raise
    deciding.catalog.require()
    return facts
