"""What the store knows of partitions becomes conditions of Dagster's declarative automation, and a sensor for them.

Dagster's own conditions see materializations and runs, so with them alone automation would start Dagster runs
that only find out that somebody else is building, or that nothing may be built. One condition asks the store
once for all partitions in question. Dagster's daemon cannot evaluate conditions that are not its own, hence a
sensor that evaluates them where the code is.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from dagster import (
    AssetKey,
    AssetsDefinition,
    AssetSelection,
    AssetSpec,
    AutomationCondition,
    AutomationConditionSensorDefinition,
    AutomationContext,
    AutomationResult,
    DefaultSensorStatus,
    SensorDefinition,
)

from databuild_dagster.bindings.adapter.asset_keys import asset_text
from databuild_dagster.bindings.adapter.dagster_private import (
    AssetGraph,
    BuiltinAutomationCondition,
    SensorType,
    quiet_beta_warnings,
)
from databuild_dagster.bindings.declare.parameters import InvalidAsset
from databuild_dagster.bindings.registry.instance import engine_for
from databuild_dagster.engine.engine import Engine
from databuild_dagster.model.refs import make_ref, partition_key_of
from databuild_dagster.model.states import FAILING, LEASED, InstanceState
from databuild_dagster.store.queries.planning import Standing

#: The sensor's name in Dagster; of several, the first.
AUTOMATION: Final = "databuild_automation"
#: Assets that Dagster lets one such sensor have.
MAX_ASSETS_PER_SENSOR = 500

#: Of some refs, those of which the condition is true.
_Which = Callable[[Engine, Sequence[str]], set[str]]


class StoreCondition(AutomationCondition[Any]):
    """True for the partitions of which the store says so."""

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

    def evaluate(self, context: AutomationContext[Any]) -> AutomationResult[Any]:
        candidates = context.candidate_subset
        if candidates.is_empty or not isinstance(context.key, AssetKey):
            return AutomationResult(context, context.get_empty_subset())
        asset = asset_text(context.key)
        keys: Iterable[str | None] = (
            candidates.expensively_compute_partition_keys() if candidates.is_partitioned else [None]
        )
        refs = [make_ref(asset, key) for key in keys]
        true = self._which(engine_for(context.asset_graph_view.instance), refs)
        if not true:
            return AutomationResult(context, context.get_empty_subset())
        if not candidates.is_partitioned:
            return AutomationResult(context, candidates)
        these = {key for ref in true if (key := partition_key_of(ref)) is not None}
        return AutomationResult(context, candidates.compute_intersection_with_partition_keys(these))


def live() -> StoreCondition:
    """What readers see is good: its canonical instance is Live (SPEC 4.1)."""
    return _of_state("live", "Its canonical instance is Live", {InstanceState.LIVE})


def leased() -> StoreCondition:
    """Somebody is building it, or waits for what it needs (SPEC 4.4)."""
    return _of_state("leased", "It is being built, or waits for its inputs", LEASED)


def tainted() -> StoreCondition:
    """Somebody has said that its data is wrong (SPEC 4.1)."""
    return _of_state("tainted", "Its canonical instance is tainted", {InstanceState.TAINTED})


def failed() -> StoreCondition:
    """It failed, or what it needs did: a run that no person starts is refused, until it is tainted (SPEC 4.5)."""
    return _of_state("failed", "It failed, or what it needs did", FAILING)


def never_built() -> StoreCondition:
    """There is no instance of it at all (SPEC 4.1: it is missing)."""
    return _of_state("never_built", "It has no instance", {None})


def wanted() -> StoreCondition:
    """An open want within its TTL names it, so the orchestrator has it built (SPEC 5.4)."""
    return StoreCondition("wanted", "An open want names it", _where(lambda standing: standing.is_wanted))


def schedulable() -> StoreCondition:
    """It may be built now: it is missing, tainted, or up for retry and its backoff has passed (SPEC 4.5)."""
    return StoreCondition("schedulable", "It may be built now", _where(lambda standing: standing.is_schedulable))


def stale() -> StoreCondition:
    """It is live, and built from what is tainted, or not what readers see any more, by now (SPEC 4.6)."""
    return StoreCondition("stale", "It is live and made of what is not canonical any more", _stale)


def unclaimed() -> StoreCondition:
    """A Dagster run would build it: it is schedulable, and nobody wants it so far.

    `AutomationCondition.on_cron("@daily") & unclaimed()` starts no run that would only delegate.
    """
    return StoreCondition(
        "unclaimed",
        "It may be built now, and nobody wants it so far",
        _where(lambda standing: standing.is_schedulable and not standing.is_wanted),
    )


def any_deps_not_live() -> BuiltinAutomationCondition[Any]:
    """One of the partitions it needs is not there: not Live if it is ours, not materialized if it is a plain asset's.

    What will be requested in the same tick counts as there: one Dagster run builds both in order.
    """
    here = ~live() & (AutomationCondition.missing() | ~never_built())
    return AutomationCondition.any_deps_match(here & ~AutomationCondition.will_be_requested()).with_label(
        "any_deps_not_live"
    )


def eager() -> BuiltinAutomationCondition[Any]:
    """As Dagster's `eager`, for what a Dagster run would build.

    Requested is a partition of the latest time window that may be built, or whose inputs were updated, since it
    was requested last; what has just been tainted counts. Never requested is what is live, leased, wanted or
    failed, and what needs something that is not live.
    """
    trigger: AutomationCondition[Any] = schedulable().newly_true() | AutomationCondition.any_deps_updated()
    return _when_unclaimed(trigger.since_last_handled()).with_label("databuild_eager")


def on_missing() -> BuiltinAutomationCondition[Any]:
    """As Dagster's `on_missing`: partitions that come into being, and nobody wants or builds, when their inputs are live."""
    trigger: AutomationCondition[Any] = never_built().newly_true()
    return _when_unclaimed(trigger.since_last_handled()).with_label("databuild_on_missing")


def automation_sensors(
    assets: Iterable[Any], given: Iterable[Any], asset_graph: Callable[[], AssetGraph], *, name: str = AUTOMATION
) -> list[SensorDefinition]:
    """The sensors that evaluate the assets with conditions of ours; those of sensors that were given are left to them.

    Raises `InvalidAsset` for a given sensor that would evaluate them in Dagster's daemon.
    """
    ours = sorted(
        {spec.key for asset in assets for spec in _specs(asset) if needs_the_store(spec.automation_condition)},
        key=AssetKey.to_user_string,
    )
    if not ours:
        return []
    for sensor in given:
        if isinstance(sensor, AutomationConditionSensorDefinition):
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
            AutomationConditionSensorDefinition(
                name if start == 0 else f"{name}_{start // MAX_ASSETS_PER_SENSOR + 1}",
                target=AssetSelection.assets(*ours[start : start + MAX_ASSETS_PER_SENSOR]).without_checks(),
                use_user_code_server=True,
                default_status=DefaultSensorStatus.RUNNING,
                description="Evaluates automation conditions that ask databuild's store.",
            )
            for start in range(0, len(ours), MAX_ASSETS_PER_SENSOR)
        ]


def needs_the_store(condition: AutomationCondition[Any] | None) -> bool:
    """Whether a condition has one of ours in it."""
    return condition is not None and any(isinstance(each, StoreCondition) for each in _tree(condition))


def _tree(condition: AutomationCondition[Any]) -> Iterator[AutomationCondition[Any]]:
    yield condition
    for child in condition.children:
        yield from _tree(child)


def _specs(asset: Any) -> Iterable[AssetSpec]:
    return asset.specs if isinstance(asset, AssetsDefinition) else [asset] if isinstance(asset, AssetSpec) else []


def _when_unclaimed(trigger: AutomationCondition[Any]) -> BuiltinAutomationCondition[Any]:
    return (
        AutomationCondition.in_latest_time_window()
        & trigger
        & unclaimed()
        & ~any_deps_not_live()
        & ~AutomationCondition.any_deps_in_progress()
        & ~AutomationCondition.in_progress()
    )


def _of_state(name: str, description: str, states: Iterable[InstanceState | None]) -> StoreCondition:
    these = frozenset(states)
    return StoreCondition(name, description, _where(lambda standing: standing.state in these))


def _where(holds: Callable[[Standing], bool]) -> _Which:
    def which(engine: Engine, refs: Sequence[str]) -> set[str]:
        # By the clock by which a claim would be decided, not by the time of Dagster's evaluation.
        standings = engine.queries.standings(refs, engine.now())
        return {ref for ref, standing in standings.items() if holds(standing)}

    return which


def _stale(engine: Engine, refs: Sequence[str]) -> set[str]:
    canonical = engine.queries.canonical(refs)
    live_uuids = {
        each.uuid: ref for ref, each in canonical.items() if each.state is InstanceState.LIVE and each.uuid is not None
    }
    return {live_uuids[uuid] for uuid in engine.queries.stale(list(live_uuids))}
