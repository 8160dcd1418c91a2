"""The operations that every code location has (rule 9.8)."""

from typing import Any

from databuild_dagster.features.operations.manager import DistributedOperation
from databuild_dagster.features.operations.provided.build_index import BuildIndex, BuildIndexArg
from databuild_dagster.features.operations.provided.compact import Compact, CompactArg
from databuild_dagster.features.operations.provided.validate import Validate, ValidateArg

__all__ = ["PROVIDED", "BuildIndex", "BuildIndexArg", "Compact", "CompactArg", "Validate", "ValidateArg"]

PROVIDED: tuple[DistributedOperation[Any], ...] = (Validate(), BuildIndex(), Compact())
