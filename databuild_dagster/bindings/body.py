"""What an asset of ours is besides what Dagster's definition says of it, and how to find it again."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from dagster import AssetKey, AssetsDefinition

from databuild_dagster.bindings.parameters import Parameter

#: Partitions that one launch builds at most, unless the asset says otherwise (SPEC 11.2).
DEFAULT_MAX_PARTITIONS_PER_LAUNCH = 1000
#: Where the body rides: on the op's function, the one thing that survives every copy Dagster makes of an
#: asset.
BODY_ATTRIBUTE: Final = "__databuild_body__"


@dataclass(frozen=True, slots=True)
class AssetBody:
    """What the step needs of an asset besides what Dagster's definition says."""

    function: Callable[..., Any]
    parameters: tuple[Parameter, ...]
    #: Parameter to upstream, as the author wrote it.
    upstreams: Mapping[str, AssetKey]
    max_partitions_per_launch: int
    concurrency: int | None


def body_of(assets_def: AssetsDefinition) -> AssetBody | None:
    """The body of one of our assets, also of the copies Dagster makes of it; None for a plain asset."""
    if not assets_def.is_executable:
        return None
    decorated = getattr(getattr(assets_def.node_def, "compute_fn", None), "decorated_fn", None)
    body = getattr(decorated, BODY_ATTRIBUTE, None)
    return body if isinstance(body, AssetBody) else None
