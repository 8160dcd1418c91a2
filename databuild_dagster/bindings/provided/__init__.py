"""The operations that every code location has (SPEC 9.8)."""

from typing import Any

from databuild_dagster.engine.operations import DistributedOperation

PROVIDED: tuple[DistributedOperation[Any], ...] = ()
