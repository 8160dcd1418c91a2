"""Facts of the store become conditions of Dagster's declarative automation, and a sensor that evaluates them.

Dagster's own conditions see materializations and runs. With them alone automation starts Dagster runs that only find
out that a different run is building, or that nothing may be built. A condition of this module asks the store once for all
partitions in question. Dagster's daemon evaluates its own conditions only, so a sensor evaluates databuild's conditions
where the code is.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import dagster as dg

from databuild_dagster.bindings.adapter.dagster_private import (
    AssetGraph,
    BuiltinAutomationCondition,
    SensorType,
    quiet_beta_warnings,
)
from databuild_dagster.bindings.adapter.keys import asset_text, specs_of
from databuild_dagster.bindings.declare.parameters import InvalidAsset
from databuild_dagster.bindings.registry.instance import engine_for
from databuild_dagster.data.environment import is_in_environment
from databuild_dagster.engine.engine import Engine
from databuild_dagster.model.refs import Ref, make_ref, partition_key_of
from databuild_dagster.model.states import FAILING, LEASED, InstanceState
from databuild_dagster.store.queries.planning import Standing

#: The sensor's name in Dagster, or the name of the first of several.
AUTOMATION: Final = "databuild_automation"
#: Assets that Dagster lets such a sensor have.
MAX_ASSETS_PER_SENSOR = 500

#: From refs to the refs for which the condition is true.
_Which = Callable[[Engine, Sequence[Ref]], set[Ref]]


class StoreCondition(dg.AutomationCondition[Any]):
    """True for the partitions that have a certain state in the store."""

    def __init__(self, name: str, description: str, which: _Which) -> None:
        self._name = name
        self._description = description
        self._which = which

    @property
    def name(self) -> str:
        return self._name

    @property
    def description(self) -> str:
        return self._description

    @property
    def requires_cursor(self) -> bool:
        return False

    def evaluate(self, context: dg.AutomationContext[Any]) -> dg.AutomationResult[Any]:
        candidates = context.candidate_subset
        if candidates.is_empty or not isinstance(context.key, dg.AssetKey):
            return dg.AutomationResult(context, context.get_empty_subset())
        asset = asset_text(context.key)
        keys: Iterable[str | None] = (
            candidates.expensively_compute_partition_keys() if candidates.is_partitioned else [None]
        )
        refs = [make_ref(asset, key) for key in keys]
        true = self._which(engine_for(context.asset_graph_view.instance), refs)
        if not true:
            return dg.AutomationResult(context, context.get_empty_subset())
        if not candidates.is_partitioned:
            return dg.AutomationResult(context, candidates)
        these = {key for ref in true if (key := partition_key_of(ref)) is not None}
        return dg.AutomationResult(context, candidates.compute_intersection_with_partition_keys(these))


def live() -> StoreCondition:
    """Its canonical instance is Live, so it is good to read (rule 4.1)."""
    return _of_state("live", "Its canonical instance is Live", {InstanceState.LIVE})


def leased() -> StoreCondition:
    """It is being built, or waits for its inputs (rule 4.4)."""
    return _of_state("leased", "It is being built, or waits for its inputs", LEASED)


def tainted() -> StoreCondition:
    """Its canonical instance is tainted (rule 4.1)."""
    return _of_state("tainted", "Its canonical instance is tainted", {InstanceState.TAINTED})


def failed() -> StoreCondition:
    """It failed, or an input did: until a taint, runs that no person starts are refused (rule 4.5)."""
    return _of_state("failed", "It failed, or what it needs did", FAILING)


def never_built() -> StoreCondition:
    """It has no instance: it is missing (rule 4.1)."""
    return _of_state("never_built", "It has no instance", {None})


def wanted() -> StoreCondition:
    """An open want within its TTL names it, so the orchestrator has it built (rule 5.4)."""
    return StoreCondition("wanted", "An open want names it", _where(lambda standing: standing.is_wanted))


def schedulable() -> StoreCondition:
    """It may be built now: it is missing, tainted, or up for retry and its backoff has passed, and not paused (rules 4.5, 6.13)."""
    return StoreCondition("schedulable", "It may be built now", _where(lambda standing: standing.is_schedulable))


def stale() -> StoreCondition:
    """It is live, and was built from instances that are tainted or no longer canonical (rule 4.6)."""
    return StoreCondition("stale", "It is live and built from instances that are no longer canonical", _stale)


def unclaimed() -> StoreCondition:
    """A Dagster run would build it: it is schedulable, and no want names it.

    `AutomationCondition.on_cron("@daily") & unclaimed()` starts no run that would only delegate.
    """
    return StoreCondition(
        "unclaimed",
        "It may be built now, and no want names it",
        _where(lambda standing: standing.is_schedulable and not standing.is_wanted),
    )


def any_deps_not_live() -> BuiltinAutomationCondition[Any]:
    """An input partition is missing: a partition of ours is not Live, a partition of a plain asset is not materialized.

    Partitions that are requested in the same tick are not missing: the same Dagster run builds both in order.
    """
    here = ~live() & (dg.AutomationCondition.missing() | ~never_built())
    return dg.AutomationCondition.any_deps_match(here & ~dg.AutomationCondition.will_be_requested()).with_label(
        "any_deps_not_live"
    )


def eager() -> BuiltinAutomationCondition[Any]:
    """Dagster's `eager`, for partitions that a Dagster run would build.

    Requests a partition of the latest time window that became schedulable, or whose inputs were updated, since its last
    request; a new taint counts. Never requests a partition that is live, leased, wanted or failed, or has an input that
    is not live. In an environment a borrowed input is no update (rule 16.13).
    """
    updated: dg.AutomationCondition[Any] = dg.AutomationCondition.any_deps_updated()
    if is_in_environment():
        # Elsewhere the condition keeps its form: Dagster forgets what it has seen of a condition that changes.
        borrowed = StoreCondition("borrowed", "Its instance is that of the base", _borrowed)
        updated = updated.replace("newly_updated", dg.AutomationCondition.newly_updated() & ~borrowed)
    trigger: dg.AutomationCondition[Any] = schedulable().newly_true() | updated
    return _when_unclaimed(trigger.since_last_handled()).with_label("databuild_eager")


def on_missing() -> BuiltinAutomationCondition[Any]:
    """Dagster's `on_missing`: requests new partitions that no one wants or builds, when their inputs are live."""
    trigger: dg.AutomationCondition[Any] = never_built().newly_true()
    return _when_unclaimed(trigger.since_last_handled()).with_label("databuild_on_missing")


def automation_sensors(
    assets: Iterable[Any], given: Iterable[Any], asset_graph: Callable[[], AssetGraph], *, name: str = AUTOMATION
) -> list[dg.SensorDefinition]:
    """The sensors that evaluate the assets with conditions of ours, except assets that a given sensor evaluates.

    Raises `InvalidAsset` for a given sensor that would evaluate them in Dagster's daemon.
    """
    ours = sorted(
        {spec.key for asset in assets for spec in specs_of(asset) if needs_the_store(spec.automation_condition)},
        key=dg.AssetKey.to_user_string,
    )
    if not ours:
        return []
    for sensor in given:
        if isinstance(sensor, dg.AutomationConditionSensorDefinition):
            taken = sensor.asset_selection.resolve(asset_graph()) & set(ours)
            if taken and sensor.sensor_type is not SensorType.AUTOMATION:
                first = min(key.to_user_string() for key in taken)
                raise InvalidAsset(
                    f"Sensor {sensor.name!r} evaluates the automation condition of {first!r} in Dagster's daemon, which "
                    "does not know databuild's conditions; give the sensor use_user_code_server=True."
                )
            ours = [key for key in ours if key not in taken]
    with quiet_beta_warnings():
        return [
            dg.AutomationConditionSensorDefinition(
                name if start == 0 else f"{name}_{start // MAX_ASSETS_PER_SENSOR + 1}",
                target=dg.AssetSelection.assets(*ours[start : start + MAX_ASSETS_PER_SENSOR]).without_checks(),
                use_user_code_server=True,
                default_status=dg.DefaultSensorStatus.RUNNING,
                description="Evaluates automation conditions that ask databuild's store.",
            )
            for start in range(0, len(ours), MAX_ASSETS_PER_SENSOR)
        ]


def needs_the_store(condition: dg.AutomationCondition[Any] | None) -> bool:
    """Whether a condition of this module is part of `condition`."""
    return condition is not None and any(isinstance(part, StoreCondition) for part in _tree(condition))


def _tree(condition: dg.AutomationCondition[Any]) -> Iterator[dg.AutomationCondition[Any]]:
    yield condition
    for child in condition.children:
        yield from _tree(child)


def _when_unclaimed(trigger: dg.AutomationCondition[Any]) -> BuiltinAutomationCondition[Any]:
    return (
        dg.AutomationCondition.in_latest_time_window()
        & trigger
        & unclaimed()
        & ~any_deps_not_live()
        & ~dg.AutomationCondition.any_deps_in_progress()
        & ~dg.AutomationCondition.in_progress()
    )


def _of_state(name: str, description: str, states: Iterable[InstanceState | None]) -> StoreCondition:
    these = frozenset(states)
    return StoreCondition(name, description, _where(lambda standing: standing.state in these))


def _where(holds: Callable[[Standing], bool]) -> _Which:
    def which(engine: Engine, refs: Sequence[Ref]) -> set[Ref]:
        # The clock of claims, not the time of Dagster's evaluation.
        standings = engine.queries.planning.standings(refs, engine.now())
        return {ref for ref, standing in standings.items() if holds(standing)}

    return which


def _borrowed(engine: Engine, refs: Sequence[Ref]) -> set[Ref]:
    refs_of = {one.uuid: ref for ref, one in engine.queries.canonical.of(refs).items() if one.uuid is not None}
    return {refs_of[uuid] for uuid in engine.queries.instances.borrowed_of(refs_of)}


def _stale(engine: Engine, refs: Sequence[Ref]) -> set[Ref]:
    canonical = engine.queries.canonical.of(refs)
    live_uuids = {
        instance.uuid: ref
        for ref, instance in canonical.items()
        if instance.state is InstanceState.LIVE and instance.uuid is not None
    }
    return {live_uuids[uuid] for uuid in engine.queries.instances.stale(list(live_uuids))}
