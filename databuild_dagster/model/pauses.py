"""The pause that keeps a ref from being launched, if any (rule 6.13). Every door asks here."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from databuild_dagster.model.refs import Ref, asset_of, partition_key_of
from databuild_dagster.model.rows import PauseRow


class PauseInForce(NamedTuple):
    """The pause that acts on a ref."""

    #: The name that is paused: the ref, or its whole asset.
    ref: Ref
    reason: str
    actor: str
    paused_at: float
    until: float
    #: The name to resume. While the whole asset is paused, a resume of the ref alone is refused.
    resumed_by: Ref


def is_whole(name: Ref) -> bool:
    """A name without a partition key names every partition of its asset."""
    return partition_key_of(name) is None


def whole(ref: Ref) -> Ref:
    """The name of all partitions of a ref's asset."""
    return Ref(asset_of(ref))


def names_of(refs: Iterable[Ref]) -> Iterator[Ref]:
    """The names by which any of the refs may be paused."""
    return (name for ref in refs for name in (whole(ref), ref))


def in_force(pauses: Mapping[Ref, PauseRow], refs: Iterable[Ref], now: float) -> dict[Ref, PauseInForce]:
    """Each ref that is paused now, with the pause; of the pause of its asset and its own pause, the pause that ends last."""
    if not pauses:
        return {}
    acting = {name: pause for name, pause in pauses.items() if now < pause.until}
    if not acting:
        return {}
    found: dict[Ref, PauseInForce] = {}
    for ref in refs:
        both = [acting[name] for name in (whole(ref), ref) if name in acting]
        if both:
            last = max(both, key=lambda pause: pause.until)
            found[ref] = PauseInForce(last.ref, last.reason, last.actor, last.paused_at, last.until, both[0].ref)
    return found


def why_refused(ref: Ref, pause: PauseInForce) -> str:
    """The sentence for a request that would build the ref."""
    return f"{ref} is paused by {pause.actor}: {pause.reason}"
