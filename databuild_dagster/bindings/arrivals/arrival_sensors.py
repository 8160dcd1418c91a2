"""A sensor for each boundary that is watched: one look at its landing folder, and a sentence of what came of it."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from dagster import (
    AssetSpec,
    DagsterInstance,
    DefaultSensorStatus,
    RepositoryDefinition,
    SensorDefinition,
    SensorEvaluationContext,
    SkipReason,
)

from databuild_dagster.bindings.adapter.asset_keys import asset_text, specs_of
from databuild_dagster.bindings.adapter.dagster_private import is_dry_run
from databuild_dagster.bindings.adapter.sqlite_tuning import tune_dagster_writes
from databuild_dagster.bindings.arrivals.watcher import Look, Watcher
from databuild_dagster.bindings.building.deployment import Deployment
from databuild_dagster.bindings.declare.boundaries import Boundary, boundary_of
from databuild_dagster.bindings.registry.instance import engine_for, warehouse_of
from databuild_dagster.bindings.registry.registration import datasets_of, register
from databuild_dagster.model.wording import few_of
from databuild_dagster.warehouse.layout import Warehouse

#: A sensor's name is this and its asset's.
ARRIVALS: Final = "databuild_arrivals"
#: Files and lots named in one message.
MAX_NAMED = 3


def arrival_sensors(deployment: Deployment, assets: Iterable[Any]) -> list[SensorDefinition]:
    """One for each boundary among the assets that says where its files land."""
    return [
        _sensor(deployment, spec, boundary)
        for asset in assets
        for spec in specs_of(asset)
        if (boundary := boundary_of(spec)) is not None and boundary.files is not None
    ]


def _sensor(deployment: Deployment, spec: AssetSpec, boundary: Boundary) -> SensorDefinition:
    asset = asset_text(spec.key)

    def evaluate(context: SensorEvaluationContext) -> SkipReason:
        repository = context.repository_def
        assert repository is not None, "a deployed sensor knows its repository"
        if is_dry_run(context):
            return SkipReason(f"Only a test: nothing in {boundary.files} is recorded by it.")
        look = look_once(context.instance, repository, deployment, asset, boundary)
        for sentence in warnings(look):
            context.log.warning(sentence)
        return SkipReason(told(look))

    return SensorDefinition(
        name=f"{ARRIVALS}_{spec.key.to_python_identifier()}",
        evaluation_fn=evaluate,
        target=None,
        minimum_interval_seconds=boundary.interval_seconds,
        default_status=DefaultSensorStatus.RUNNING,
        description=f"Records what lands in {boundary.files} as lots of {asset}. What it has seen, the store knows.",
    )


def watched(repository: RepositoryDefinition) -> Iterable[tuple[str, Boundary]]:
    """The boundaries of a loaded code location that say where their files land."""
    for key in sorted(repository.asset_graph.get_all_asset_keys()):
        boundary = boundary_of(repository.asset_graph.get(key))
        if boundary is not None and boundary.files is not None:
            yield asset_text(key), boundary


def look_once(
    instance: DagsterInstance,
    repository: RepositoryDefinition,
    deployment: Deployment,
    asset: str,
    boundary: Boundary,
) -> Look:
    """One look at a loaded code location's boundary. Raises what `Watcher.look` raises, and `LocationTaken`."""
    tune_dagster_writes()
    engine = engine_for(instance)
    datasets = datasets_of(repository.asset_graph, deployment.location)
    register(engine, deployment.location, datasets, building=[asset])
    (dataset,) = (each for each in datasets if each.asset == asset)
    warehouse = Warehouse(deployment.warehouse or warehouse_of(instance))
    watcher = engine.memory.of(
        (Watcher, asset, dataset.partitions, boundary),
        lambda: Watcher(engine, instance, dataset, warehouse, boundary),
    )
    return watcher.look(engine.clock())


def told(look: Look) -> str:
    """One line for the sensor's history."""
    parts = []
    if look.recorded:
        # Of late data the files that are new; its lot has those it had besides.
        files = sum(len(each.files) - each.n_kept for each in look.recorded)
        empty = sum(not each.files for each in look.recorded)
        parts.append(f"{_count(len(look.recorded), 'lot')} arrived with {_count(files, 'file')}")
        parts += [f"{empty} of them empty"] if empty else []
        parts += [f"{len(look.late)} of them late data: {few_of(look.late, MAX_NAMED)}"] if look.late else []
    if look.unsettled:
        parts.append(f"{few_of(look.unsettled, MAX_NAMED)} is still being written")
    if look.held:
        parts.append(f"{_count(len(look.held), 'lot')} cannot be recorded")
    if look.strangers:
        parts.append(f"{_belongs_to_none(look.strangers)}")
    if look.more:
        parts.append("there is more for the next look")
    return f"{'; '.join(parts) or 'Nothing has arrived'}."


def warnings(look: Look) -> list[str]:
    """What somebody has to look after."""
    found = [f"{ref} cannot be recorded: {why}" for ref, why in list(look.held.items())[:MAX_NAMED]]
    if more := len(look.held) - MAX_NAMED:
        found += [f"{_count(more, 'more lot')} cannot be recorded."] if more > 0 else []
    if look.strangers:
        found.append(
            f"{_belongs_to_none(look.strangers)}, for no time of a partition is told by "
            f"{few_of(sorted(look.strangers), MAX_NAMED)}."
        )
    return found


def _belongs_to_none(strangers: Sequence[str]) -> str:
    return f"{_count(len(strangers), 'file')} {'belongs' if len(strangers) == 1 else 'belong'} to no lot"


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
