"""Dagster runs that are not launches ask for refs: they build, join, reuse, or are refused (rules 8.1 to 8.3)."""

from __future__ import annotations

from databuild_dagster.model.states import InstanceState

from . import job_runs, taints, wants
from .state import FAILING, Naive

_I = InstanceState
#: Rule 8.1.
WANT_SECONDS = 24 * 3600.0


def answer(naive: Naive, ref: str, *, by_person: bool) -> str:
    """Rule 8.1, and rule 6.13 for a paused ref."""
    row = naive.refs[ref]
    if row.state is _I.LIVE:
        return "reused"
    if row.state is _I.BUILDING:
        return "joined"
    if naive.is_paused(ref):
        return "refused"
    if row.state is _I.UPSTREAM_BUILDING:
        return "joined"
    if row.state is _I.UP_FOR_RETRY and naive.now < row.retry_at and not by_person:
        return "joined"
    return "refused" if row.state in FAILING and not by_person else "built"


def claim(
    naive: Naive, groups: list[tuple[str, ...]], launch_id: str, requester: str, *, by_person: bool
) -> dict[str, str]:
    """The answer for each ref. A failed ref that a person builds is tainted first. What is built or joined is wanted for a day."""
    refs = [ref for group in groups for ref in group]
    answers = {ref: answer(naive, ref, by_person=by_person) for ref in refs}
    for ref, given in answers.items():
        # A run that waited for a build asks again when that is live: it has its answer (rule 8.3).
        if given == "reused" and naive.delegations.get((requester, ref)) == ("joined", "live"):
            continue
        # The ledger does not record a refusal for a pause alone.
        for_failure = naive.refs[ref].state in FAILING and not by_person
        if given != "built" and (given != "refused" or for_failure):
            outcome = {"joined": "waiting", "reused": "live", "refused": "refused"}[given]
            naive.delegations[requester, ref] = (given, outcome)
    built = [ref for ref in refs if answers[ref] == "built"]
    for ref in built:
        if naive.delegations.get((requester, ref)) == ("joined", "waiting"):
            del naive.delegations[requester, ref]
    if opened := tuple(ref for ref in built if naive.refs[ref].state in FAILING):
        taints.taint(naive, opened, f"claim {launch_id}", downstream=False)
    for ref in refs:
        if answers[ref] in ("built", "joined") and not any(
            want.requester == requester for want in naive.open_wants(ref)
        ):
            wants.want(naive, (ref,), ttl_seconds=WANT_SECONDS, requester=requester)
    for ref in built:
        naive.refs[ref].retry_at = 0.0
    for group in groups:
        job_runs.buffer(naive, tuple(ref for ref in group if ref in built), launch_id)
    job_runs.begin(naive, launch_id)
    return answers


def give_up(naive: Naive, requester: str) -> None:
    for (who, ref), (given, outcome) in naive.delegations.items():
        if who == requester and outcome == "waiting":
            naive.delegations[who, ref] = (given, "given up")
