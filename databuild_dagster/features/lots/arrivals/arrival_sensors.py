"""A sensor for each boundary with a landing folder: it looks once, and states the result in a sentence."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import dagster as dg

from databuild_dagster.bindings.adapter.dagster_private import is_dry_run
from databuild_dagster.bindings.adapter.keys import asset_text, specs_of
from databuild_dagster.bindings.adapter.sqlite_tuning import tune_dagster_writes
from databuild_dagster.bindings.building.deployment import Deployment
from databuild_dagster.bindings.registry.instance import engine_for, warehouse_of
from databuild_dagster.bindings.registry.registration import datasets_of
from databuild_dagster.data.environment import environment_of
from databuild_dagster.data.ownership import Ownership
from databuild_dagster.engine.registering import register
from databuild_dagster.features.lots.arrivals.boundaries import Boundary, boundary_of
from databuild_dagster.features.lots.arrivals.watcher import Look, Watcher
from databuild_dagster.model.redaction import errors_without_secrets
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.wording import counted, few_of
from databuild_dagster.warehouse.layout import Warehouse

#: A sensor's name is this and its asset's.
ARRIVALS: Final = "databuild_arrivals"
#: Files and lots named in a message.
MAX_NAMED = 3


def arrival_sensors(deployment: Deployment, assets: Iterable[Any]) -> list[dg.SensorDefinition]:
    """A sensor for each boundary among the assets that has a landing folder."""
    return [
        _sensor(deployment, spec, boundary)
        for asset in assets
        for spec in specs_of(asset)
        if (boundary := boundary_of(spec)) is not None and boundary.files is not None
    ]


def _sensor(deployment: Deployment, spec: dg.AssetSpec, boundary: Boundary) -> dg.SensorDefinition:
    asset = asset_text(spec.key)

    @errors_without_secrets()
    def evaluate(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        repository = context.repository_def
        assert repository is not None, "a deployed sensor knows its repository"
        if is_dry_run(context):
            return dg.SkipReason(f"Only a test: it records nothing of {boundary.files}.")
        look = look_once(context.instance, repository, deployment, asset, boundary)
        for sentence in warnings(look):
            context.log.warning(sentence)
        return dg.SkipReason(summary(look))

    return dg.SensorDefinition(
        name=f"{ARRIVALS}_{spec.key.to_python_identifier()}",
        evaluation_fn=evaluate,
        target=None,
        minimum_interval_seconds=boundary.interval_seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Records the files in {boundary.files} as lots of {asset}. Its progress is in the store.",
    )


def watched(repository: dg.RepositoryDefinition) -> Iterable[tuple[str, Boundary]]:
    """The boundaries of a loaded code location that have a landing folder."""
    for key in sorted(repository.asset_graph.get_all_asset_keys()):
        boundary = boundary_of(repository.asset_graph.get(key))
        if boundary is not None and boundary.files is not None:
            yield asset_text(key), boundary


def look_once(
    instance: dg.DagsterInstance,
    repository: dg.RepositoryDefinition,
    deployment: Deployment,
    asset: str,
    boundary: Boundary,
) -> Look:
    """Look once at a boundary of a loaded code location; an environment records nothing (rule 16.5).

    Raises the errors of `Watcher.look`, and `LocationTaken`.
    """
    if environment_of(instance.root_directory) is not None:
        return Look()
    tune_dagster_writes()
    engine = engine_for(instance)
    datasets = datasets_of(repository.asset_graph, deployment.location)
    register(engine, deployment.location, datasets, building=[asset], is_asked=False)
    (dataset,) = (spec for spec in datasets if spec.asset == asset)
    warehouse = Warehouse(deployment.warehouse or warehouse_of(instance))
    Ownership(engine.store).claim(warehouse)
    watcher = engine.memory.of(
        (Watcher, asset, dataset.partitions, boundary), lambda: Watcher(engine, instance, dataset, warehouse, boundary)
    )
    return watcher.look(engine.clock())


def summary(look: Look) -> str:
    """The result of a look on a line, for the sensor's history."""
    parts = []
    if look.recorded:
        # Late data counts new files only, without those that the lot had before.
        files = sum(len(lot.files) - lot.n_kept for lot in look.recorded)
        empty = sum(not lot.files for lot in look.recorded)
        parts.append(f"{counted(len(look.recorded), 'lot')} arrived with {counted(files, 'file')}")
        parts += [f"{empty} of them empty"] if empty else []
        parts += [f"{len(look.late)} of them late data: {few_of(look.late, MAX_NAMED)}"] if look.late else []
    if look.unsettled:
        parts.append(f"{few_of(look.unsettled, MAX_NAMED)} is still being written")
    if look.held:
        parts.append(f"{counted(len(look.held), 'lot')} cannot be recorded")
    if look.unclear:
        parts.append(f"the lot of {counted(len(look.unclear), 'file')} is not known")
    if look.strangers:
        parts.append(_belongs_to_none(look.strangers))
    if look.more:
        parts.append("the next look has more to do")
    return f"{'; '.join(parts) or 'Nothing has arrived'}."


def warnings(look: Look) -> list[str]:
    """Problems that a person has to solve."""
    found = _not_recorded(look.held, "lot") + _not_recorded(look.unclear, "file")
    if look.strangers:
        found.append(
            f"{_belongs_to_none(look.strangers)}, because no time of a partition is in the name of "
            f"{few_of(sorted(look.strangers), MAX_NAMED)}."
        )
    return found


def _not_recorded(why_not: Mapping[Ref, str] | Mapping[str, str], noun: str) -> list[str]:
    """A sentence for each of the first `MAX_NAMED`, and a sentence that counts the rest."""
    found = [f"{name} cannot be recorded: {why}" for name, why in list(why_not.items())[:MAX_NAMED]]
    more = len(why_not) - MAX_NAMED
    return found + ([f"{counted(more, f'more {noun}')} cannot be recorded."] if more > 0 else [])


def _belongs_to_none(strangers: Sequence[str]) -> str:
    return f"{counted(len(strangers), 'file')} {'belongs' if len(strangers) == 1 else 'belong'} to no lot"
