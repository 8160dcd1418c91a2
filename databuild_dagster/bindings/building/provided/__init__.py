"""The operations that every code location has (rule 9.8)."""

from typing import Any

from databuild_dagster.bindings.building.provided.build_index import BuildIndex, BuildIndexArg
from databuild_dagster.bindings.building.provided.compact import Compact, CompactArg
from databuild_dagster.bindings.building.provided.validate import Validate, ValidateArg
from databuild_dagster.engine.operations.manager import DistributedOperation

__all__ = ["PROVIDED", "BuildIndex", "BuildIndexArg", "Compact", "CompactArg", "Validate", "ValidateArg"]

PROVIDED: tuple[DistributedOperation[Any], ...] = (Validate(), BuildIndex(), Compact())
