"""`parts=`: the option of an asset that builds a lot in parts; and the sensors of boundaries."""

from __future__ import annotations

from typing import Final

from databuild_dagster.bindings.authoring.definers import Definer
from databuild_dagster.bindings.declare.settings import AssetSetting
from databuild_dagster.features.lots.arrivals.arrival_sensors import arrival_sensors
from databuild_dagster.features.lots.parts.lot_parts import refuse_parts, split_of

ASSET_SETTINGS: Final = (AssetSetting(name="parts", split=split_of, check_several=refuse_parts),)
DEFINERS: Final = (Definer(sensors_of=arrival_sensors),)
