"""The keys of a deployment's parts among Dagster's resources."""

from typing import Final

#: The deployment: location, datasets, warehouse.
DEPLOYMENT: Final = "databuild"
#: The resource with the Spark session.
SPARK: Final = "databuild_spark"
#: The read-only IO manager.
IO_MANAGER: Final = "databuild_io_manager"
#: The resource by which sensors and schedules create wants.
WANTS: Final = "wants"
