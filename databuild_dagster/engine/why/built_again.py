"""Refs whose job run was canceled and that are built again all the same, with the command that prevents it (rule 6.10)."""

from collections.abc import Iterable, Mapping, Sequence

from databuild_dagster.engine.engine import Engine
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.states import InstanceState
from databuild_dagster.model.wording import few_of, typed
from databuild_dagster.store.queries.ids import short_id
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.queries.wants import WantFilter, WantView

#: Refs that are explained, and refs that wait for each, of which the wants are read.
MAX_EXPLAINED = 3
MAX_WAITERS = 20
#: Wants that a command to copy names; for more of them it names their requests.
MAX_WANTS = 5


def built_again(engine: Engine, refs: Iterable[Ref]) -> list[str]:
    """A sentence for each of the first refs that are up for retry with open wants."""
    wanted = engine.queries.planning.wanted(refs)
    states = engine.queries.canonical.states(wanted)
    again = [ref for ref, state in states.items() if state is InstanceState.UP_FOR_RETRY and wanted[ref].n_open_wants]
    waiting = engine.queries.planning.waiting_for(again[:MAX_EXPLAINED]) if again else {}
    sentences = []
    for ref in again[:MAX_EXPLAINED]:
        waiters = waiting.get(ref, ())
        why = (
            f"{few_of(waiters, MAX_EXPLAINED)} {'wait' if len(waiters) > 1 else 'waits'} for it"
            if waiters
            else "it is wanted"
        )
        cancel = to_cancel(engine.queries, ref, waiters)
        prevents = f"; {cancel} prevents that" if cancel else ""
        sentences.append(f"{ref} is built again, because {why}{prevents}.")
    if len(again) > MAX_EXPLAINED:
        sentences.append(f"{len(again) - MAX_EXPLAINED} more refs are built again.")
    return sentences


def to_cancel(queries: Queries, ref: Ref, waiters: Sequence[Ref] = ()) -> str:
    """The command that ends the open wants of a ref and of what waits for it; empty without any that a job run did not record."""
    wants = wants_of(queries, {ref: (ref, *waiters[:MAX_WAITERS])})[ref]
    names = [want.id for want in wants]
    if len(names) > MAX_WANTS:
        names = list(dict.fromkeys(want.request_id for want in wants))
    return f"`databuild want cancel {typed(*map(short_id, names))}`" if names else ""


def wants_of(queries: Queries, waiters: Mapping[Ref, Sequence[Ref]]) -> dict[Ref, list[WantView]]:
    """Each awaited ref, with the open wants of its waiters that no job run recorded."""
    open_wants = {
        other: queries.wants.newest(WantFilter(open_only=True, derivative=False, ref=other))
        for other in dict.fromkeys(other for others in waiters.values() for other in others)
    }
    return {
        ref: list({want.id: want for other in others for want in open_wants[other]}.values())
        for ref, others in waiters.items()
    }
