"""What an asset has among its resources when nobody deployed it: enough for `materialize([asset])`.

`build_definitions` replaces them. Dagster compares such defaults by identity, hence one set of objects for
all assets.
"""

from functools import cache
from typing import Any

from databuild_dagster.bindings.adapter.resource_keys import DEPLOYMENT, IO_MANAGER, SPARK
from databuild_dagster.bindings.building.deployment import Deployment, DeploymentResource
from databuild_dagster.bindings.building.io_manager import databuild_io_manager
from databuild_dagster.bindings.reading.spark_resource import DatabuildSpark


@cache
def default_resources() -> dict[str, Any]:
    """Ready-made, by key."""
    return {
        DEPLOYMENT: DeploymentResource(Deployment()),
        SPARK: DatabuildSpark().get_resource_definition(),
        IO_MANAGER: databuild_io_manager,
    }
