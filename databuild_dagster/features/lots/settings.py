"""`parts=`: the option of an asset that builds a lot in parts; and the sensors of boundaries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from databuild_dagster.bindings.authoring.definers import Definer
from databuild_dagster.bindings.declare.parameters import Parameter
from databuild_dagster.bindings.declare.settings import AssetSetting
from databuild_dagster.features.lots.arrivals.arrival_sensors import arrival_sensors
from databuild_dagster.features.lots.parts.lot_parts import PartSplit, refuse_parts, split_of

if TYPE_CHECKING:
    from databuild_dagster.bindings.building.call import Leftovers, Stops, Tools
    from databuild_dagster.bindings.building.outputs import Outputs
    from databuild_dagster.bindings.declare.asset_spec import Caller


@dataclass(frozen=True, slots=True)
class InParts:
    """A call of the function for each part of a lot."""

    parts: PartSplit

    def caller(self, tools: Tools, outputs: Outputs, stops: Stops, leftovers: Leftovers, *, threads: int) -> Caller:
        """Spark is imported here, by a step, and not where assets are declared."""
        from databuild_dagster.features.lots.parts.parts_caller import PartsCaller

        return PartsCaller(self.parts, tools, outputs, stops, leftovers, threads=threads)


def _split(asset: str, given: Any, parameters: Sequence[Parameter], batched: bool) -> InParts | None:
    parts = split_of(asset, given, parameters, batched)
    return None if parts is None else InParts(parts)


ASSET_SETTINGS: Final = (AssetSetting(name="parts", split=_split, check_several=refuse_parts),)
DEFINERS: Final = (Definer(sensors_of=arrival_sensors),)
