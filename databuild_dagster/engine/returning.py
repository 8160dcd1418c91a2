"""Earlier instances in place of builds, before refs are built: recorded by ticks and claims, named by plans (rule 4.9)."""

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.holders import this_user
from databuild_dagster.engine.ports import Provided, sample_of_build
from databuild_dagster.engine.registering import Definitions, unmoved_since
from databuild_dagster.engine.wording import when
from databuild_dagster.model.commands import Returnable, ReturnInstances
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.decide.returning import is_deterministic
from databuild_dagster.model.events import InstancesReturned, Return, TaintCreated
from databuild_dagster.model.plan import MAX_PLANNED_REFS
from databuild_dagster.model.refs import Ref, asset_of, derive_partition_uuid, partition_key_of
from databuild_dagster.model.states import LEASED, InstanceState

#: Refs of a command.
MAX_REFS = 1_000


def provide(
    engine: Engine, refs: Sequence[Ref], *, is_plan: bool = False, specs: Collection[DatasetSpec] | None = None
) -> Provided:
    """Take earlier instances of `refs` back, and of the inputs without which they could not come back.

    Without a deterministic dataset among `specs` it asks nothing.
    """
    known = engine.queries.datasets.all().values() if specs is None and refs else specs or ()
    asked = _returnable(engine, refs, is_plan=is_plan) if any(map(is_deterministic, known)) else []
    sample = None if is_plan else sample_of_build.get()
    returned: list[Return] = []
    for start in range(0, len(asked), MAX_REFS):
        command = ReturnInstances(refs=tuple(asked[start : start + MAX_REFS]))
        if sample is not None:
            command = replace(command, verify=sample.part, at_least_one=not sample.is_met)
        outcome = engine.preview(command).outcome if is_plan else engine.handle(command, actor=this_user())
        facts = [event.fact for event in outcome.events]
        returned += [one for fact in facts if isinstance(fact, InstancesReturned) for one in fact.returns]
        if sample is not None and any(isinstance(fact, TaintCreated) for fact in facts):
            sample.is_met = True
    if not is_plan or not returned:
        return Provided([one.ref for one in returned], {})
    uuids = {derive_partition_uuid(one.job_run_id, one.ref): one.ref for one in returned}
    instances = engine.queries.instances.named(uuids)
    return Provided((), {}, {uuids[instance.uuid]: why_returned(instance.live_at) for instance in instances})


def why_returned(live_at: float | None) -> str:
    """The reason to reuse an earlier instance, which became live at that time first."""
    return f"the instance of {when(live_at)}, whose code and inputs are equal"


def _returnable(engine: Engine, refs: Sequence[Ref], *, is_plan: bool) -> list[Returnable]:
    """The refs that may come back, inputs before what is built from them; a plan looks at the inputs of all that is not live."""
    found: dict[Ref, Returnable] = {}
    specs: dict[str, DatasetSpec | None] = {}
    definitions: dict[str, Definitions] = {}
    level, seen = list(dict.fromkeys(refs)), set[Ref]()
    # A plan of more refs is refused, and `explain` has no other bound.
    while level and (not is_plan or len(seen) < MAX_PLANNED_REFS):
        seen.update(level)
        below: dict[Ref, None] = {}
        set_aside = set(engine.queries.instances.set_aside_by_code(level))
        for ref in _not_live(engine, level) if is_plan else level:
            asset = asset_of(ref)
            if ref not in set_aside and not is_plan:
                continue
            if asset not in specs:
                specs[asset] = engine.queries.datasets.get(asset)
            if (spec := specs[asset]) is None or not (is_plan or is_deterministic(spec)):
                continue
            inputs = engine.catalog.inputs(spec, partition_key_of(ref))
            below |= dict.fromkeys(inputs)
            if ref in set_aside and is_deterministic(spec):
                if asset not in definitions:
                    definitions[asset] = Definitions(engine.queries, asset)
                found[ref] = Returnable(ref, inputs, unmoved_since(engine, spec, ref, definitions[asset]))
        level = [ref for ref in below if ref not in seen]
    return list(reversed(found.values()))


def _not_live(engine: Engine, refs: Sequence[Ref]) -> list[Ref]:
    states = engine.queries.canonical.states(refs)
    return [ref for ref in refs if states[ref] is not InstanceState.LIVE and states[ref] not in LEASED]
