"""The keys under which a deployment's parts stand among Dagster's resources."""

from typing import Final

#: The deployment: location, datasets, warehouse.
DEPLOYMENT: Final = "databuild"
#: The resource with the Spark session.
SPARK: Final = "databuild_spark"
#: The read-only IO manager.
IO_MANAGER: Final = "databuild_io_manager"
#: The resource with which sensors and schedules want.
WANTS: Final = "wants"
