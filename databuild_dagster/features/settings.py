"""The options that features add to what authors write, for type checkers: keywords of `build_definitions` and of the decorators.

The core uses these types for type checks only, never at run time. The rows of the features have the meaning of each option.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypedDict

import dagster as dg

from databuild_dagster.bindings.authoring.dagster_options import Refused, RefusedOfMulti
from databuild_dagster.features.lots.parts.lot_parts import PartSplit
from databuild_dagster.features.notices.alerts import Alert, AlertAttributes
from databuild_dagster.features.operations.manager import DistributedOperation
from databuild_dagster.features.tables.publish import Publish, PublishAttributes


class LocationOptions(TypedDict, total=False):
    """Keywords of `build_definitions` and `SharedLocation`."""

    alerts: Iterable[Alert]
    operations: Iterable[DistributedOperation[Any]]
    promoters: Iterable[str] | None
    publish: Publish


class AssetOptions(Refused, total=False):
    """Keywords of `@databuild_asset`."""

    parts: PartSplit | None
    publish: Publish
    sample: bool
    same_data: Literal["keep"] | None
    deterministic: bool


class MultiAssetOptions(RefusedOfMulti, total=False):
    """Keywords of `@databuild_multi_asset`."""

    parts: None
    publish: Publish | Mapping[str, Publish]
    sample: bool | Mapping[str, bool]
    same_data: Literal["keep"] | Mapping[str, Literal["keep"] | None] | None
    deterministic: bool | Mapping[str, bool]


class BoundaryOptions(TypedDict, total=False):
    """Keywords of `databuild_boundary`, including keywords that it passes to the `AssetSpec`."""

    publish: Publish
    sample: bool
    deps: Iterable[Any] | None
    description: str | None
    group_name: str | None
    owners: Sequence[str] | None
    tags: Mapping[str, str] | None
    kinds: set[str] | None
    code_version: str | None
    automation_condition: dg.AutomationCondition[Any] | None
    freshness_policy: dg.FreshnessPolicy | None


class ComponentAttributes(dg.Model):
    """Attributes of a `defs.yaml`."""

    alerts: Sequence[AlertAttributes] = ()
    operations: Sequence[str] = ()
    promoters: Sequence[str] | None = None
    publish: PublishAttributes | None = None
