"""The inputs of a step's job runs: their refs, the missing ones, and the instances that are read.

All declared inputs of all job runs are looked up together, before Spark and before user code (rule 6.3). The instances
are pinned here: an input that is rebuilt meanwhile does not change under a job run.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.observing import observe
from databuild_dagster.engine.ports import Foreign
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.refs import Ref, asset_of, partition_key_of
from databuild_dagster.model.states import InstanceState
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.warehouse.manifest import ManifestState


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs of a ref."""

    #: Input asset to the refs of it that are read, in the order of its partitions.
    refs_of_asset: Mapping[str, tuple[Ref, ...]]
    #: Every input ref to the instance that is read.
    pinned: Mapping[Ref, Canonical]
    #: The refs that are not live.
    missing: tuple[Ref, ...]

    def are_empty(self, assets: Collection[str]) -> bool:
        """Whether all partitions of `assets` that are read are empty; if none is read, whether all inputs are."""
        refs = [ref for asset in self.refs_of_asset if asset in assets for ref in self.refs_of_asset[asset]]
        looked_at = refs or list(self.pinned)
        return bool(looked_at) and all(self.pinned[ref].manifest_state == ManifestState.EMPTY for ref in looked_at)

    @property
    def uuids(self) -> dict[Ref, str]:
        """Every input ref to the uuid of the instance that is read."""
        return {ref: pinned.uuid for ref, pinned in self.pinned.items() if pinned.uuid is not None}


class InputFinder:
    """Looks inputs up for a step."""

    def __init__(self, engine: Engine, foreign: Foreign, registered: Iterable[DatasetSpec]) -> None:
        """`registered` are the datasets of all locations when the step began."""
        self._engine = engine
        self._foreign = foreign
        self._is_foreign = {dataset.asset: dataset.kind.is_foreign for dataset in registered}

    def of(self, datasets: Mapping[str, DatasetSpec], refs: Iterable[Ref]) -> dict[Ref, Inputs]:
        """The declared inputs of each ref; `datasets` by asset."""
        declared = {ref: self._engine.catalog.inputs(datasets[asset_of(ref)], partition_key_of(ref)) for ref in refs}
        pinned = self.pin({input_ref for inputs in declared.values() for input_ref in inputs})
        return {ref: _inputs(inputs, pinned) for ref, inputs in declared.items()}

    def pin(self, refs: Iterable[Ref]) -> dict[Ref, Canonical]:
        """The canonical instance of each ref, of plain assets as Dagster sees them."""
        wanted = sorted(refs)
        if not wanted:
            return {}
        if foreign := [ref for ref in wanted if self.is_foreign(asset_of(ref))]:
            observe(self._engine, self._foreign, foreign)
        return self._engine.queries.canonical.of(wanted)

    def follows_key(self, dataset: DatasetSpec, asset: str) -> bool:
        """Whether the partitions of an input depend on the output's key."""
        return any(self._engine.catalog.follows_key(dataset, spec) for spec in dataset.inputs if spec.asset == asset)

    def is_foreign(self, asset: str) -> bool:
        """Whether an asset's data is outside of any warehouse, and read by Dagster."""
        if asset not in self._is_foreign:
            dataset = self._engine.queries.datasets.get(asset)
            self._is_foreign[asset] = dataset is not None and dataset.kind.is_foreign
        return self._is_foreign[asset]


def _inputs(declared: tuple[Ref, ...], pinned: Mapping[Ref, Canonical]) -> Inputs:
    by_asset: dict[str, list[Ref]] = {}
    for ref in declared:
        by_asset.setdefault(asset_of(ref), []).append(ref)
    return Inputs(
        refs_of_asset={asset: tuple(refs) for asset, refs in by_asset.items()},
        pinned={ref: pinned[ref] for ref in declared},
        missing=tuple(ref for ref in declared if pinned[ref].state is not InstanceState.LIVE),
    )
