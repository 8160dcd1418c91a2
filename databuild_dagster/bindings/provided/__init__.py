"""The operations that every code location has (SPEC 9.8)."""

from typing import Any

from databuild_dagster.bindings.provided.build_index import BuildIndex, BuildIndexArg
from databuild_dagster.bindings.provided.compact import Compact, CompactArg
from databuild_dagster.bindings.provided.validate import Validate, ValidateArg
from databuild_dagster.engine.operations import DistributedOperation

__all__ = ["PROVIDED", "BuildIndex", "BuildIndexArg", "Compact", "CompactArg", "Validate", "ValidateArg"]

PROVIDED: tuple[DistributedOperation[Any], ...] = (Validate(), BuildIndex(), Compact())
