"""`databuild_boundary`: a dataset whose lots are files from outside, declared as an external asset of Dagster (SPEC 10.6).

What is said of it stands in the asset's metadata, so that whoever has the asset graph knows it for a boundary, and the UI
shows where its files land. Where a pattern says so, a sensor watches (`watching`); a boundary without one waits for
`databuild lot arrive`. What cannot work is refused here, before anything is deployed.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, tzinfo
from typing import Any, Final, Literal
from zoneinfo import ZoneInfo

import msgspec
from dagster import AssetKey, AssetSpec, MetadataValue, PartitionsDefinition, TimeWindowPartitionsDefinition

from databuild_dagster.bindings.adapter.resource_keys import IO_MANAGER
from databuild_dagster.bindings.declare.parameters import InvalidAsset
from databuild_dagster.data.landing import BadLandingPattern, LandingPattern

#: The metadata that makes an asset a boundary.
BOUNDARY: Final = "databuild/boundary"

DEFAULT_GRACE_SECONDS = 60.0
DEFAULT_SETTLE_SECONDS = 10.0
DEFAULT_INTERVAL_SECONDS = 30

#: What is told in seconds, what it may be, and the least of it.
_SECONDS: Final = (
    ("grace_seconds", "a number", (int, float), 0),
    ("settle_seconds", "a number", (int, float), 0),
    ("interval_seconds", "a whole number", (int,), 1),
)


@dataclass(frozen=True, slots=True)
class Boundary:
    """How files become lots."""

    #: Where they land; None where nothing watches.
    files: str | None = None
    by: Literal["name", "modified"] = "name"
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    #: An interval that has passed with nothing arrived makes an empty lot.
    empty: bool = False
    #: How long after its end an interval is closed.
    grace_seconds: float = DEFAULT_GRACE_SECONDS
    #: How long a file on a disk has to be left alone to count as written.
    settle_seconds: float = DEFAULT_SETTLE_SECONDS
    allow_schema_change: bool = False
    interval_seconds: int = DEFAULT_INTERVAL_SECONDS

    def pattern(self, asset: str, partitions: PartitionsDefinition | None) -> LandingPattern:
        """What `files` means. Raises `BadLandingPattern`."""
        assert self.files is not None, "a boundary that nothing watches has no pattern"
        return LandingPattern(self.files, asset, _timezone(partitions), self.by == "name", self.include, self.exclude)


def databuild_boundary(
    key: str | Sequence[str] | AssetKey,
    *,
    partitions_def: PartitionsDefinition,
    files: str | None = None,
    by: Literal["name", "modified"] = "name",
    include: str | Sequence[str] = (),
    exclude: str | Sequence[str] = (),
    empty: bool = False,
    grace_seconds: float = DEFAULT_GRACE_SECONDS,
    settle_seconds: float = DEFAULT_SETTLE_SECONDS,
    allow_schema_change: bool = False,
    interval_seconds: int = DEFAULT_INTERVAL_SECONDS,
    metadata: Mapping[str, Any] | None = None,
    **spec: Any,
) -> AssetSpec:
    """An external asset whose lots are Parquet files that somebody else writes; give it to `build_definitions`.

    `files` is where they land, a path or a url: `'landing/flights_{time:%Y%m%dT%H%M}*.parquet'`; with
    `by="modified"` without a time, and the time of modification counts. A sensor looks there every
    `interval_seconds`, and records a lot `grace_seconds` after its interval has ended; what comes later is late data,
    a new instance of the lot. `include` and `exclude` are globs of names, or of paths below the folder. `empty=True`
    makes an interval that has passed with nothing arrived an empty lot. A file on a disk counts when it was left
    alone for `settle_seconds`. Without `files`, lots arrive by `databuild lot arrive` alone. Everything else is
    passed to the `AssetSpec`. Raises `InvalidAsset`, `BadLandingPattern`.
    """
    name = AssetKey.from_coercible(key).to_user_string()
    boundary = Boundary(
        files=files,
        by=by,
        include=_globs(include),
        exclude=_globs(exclude),
        empty=empty,
        grace_seconds=grace_seconds,
        settle_seconds=settle_seconds,
        allow_schema_change=allow_schema_change,
        interval_seconds=interval_seconds,
    )
    _check(name, boundary, partitions_def)
    told: dict[str, Any] = {BOUNDARY: MetadataValue.json(asdict(boundary))}
    if files is not None:
        told["databuild/files"] = MetadataValue.text(files)
    made = AssetSpec(key, partitions_def=partitions_def, metadata={**(metadata or {}), **told}, **spec)
    # Plain assets read its lots as they read ours.
    return made.with_io_manager_key(IO_MANAGER)


def boundary_of(spec: Any) -> Boundary | None:
    """What an asset's spec, or its node of the graph, says of it as a boundary; None for what is none."""
    told = spec.metadata.get(BOUNDARY)
    return None if told is None else msgspec.convert(getattr(told, "data", told), Boundary)


def _globs(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _timezone(partitions: PartitionsDefinition | None) -> tzinfo:
    name = partitions.timezone if isinstance(partitions, TimeWindowPartitionsDefinition) else "UTC"
    return UTC if name == "UTC" else ZoneInfo(name)


def _check(name: str, boundary: Boundary, partitions: PartitionsDefinition) -> None:
    """Raises `InvalidAsset`, `BadLandingPattern`."""
    if not isinstance(partitions, PartitionsDefinition):
        raise InvalidAsset(f"Boundary {name!r} has no partitions_def; a lot is a partition of it.")
    if boundary.by not in ("name", "modified"):
        raise InvalidAsset(f"Boundary {name!r} goes by {boundary.by!r}; it goes by 'name' or by 'modified'.")
    for option, what, kinds, least in _SECONDS:
        told = getattr(boundary, option)
        is_one = isinstance(told, kinds) and not isinstance(told, bool) and math.isfinite(told)
        if not is_one or told < least:
            must = f"it must be at least {least}" if is_one else f"it must be {what}, and at least {least}"
            raise InvalidAsset(f"{option} of boundary {name!r} is {told!r}; {must}.")
    if boundary.files is None:
        if boundary.empty or boundary.include or boundary.exclude or boundary.by == "modified":
            raise InvalidAsset(f"Boundary {name!r} says how files are watched, and not which; give it files=….")
        return
    if not isinstance(partitions, TimeWindowPartitionsDefinition):
        raise InvalidAsset(
            f"Boundary {name!r} has {type(partitions).__name__}, and files are sorted into lots by their time; give it "
            "partitions in time, or leave files out and use `databuild lot arrive`."
        )
    pattern = boundary.pattern(name, partitions)
    pattern.check_works()
    first = partitions.get_first_partition_window() or partitions.time_window_for_partition_key(
        partitions.start.strftime(partitions.fmt)
    )
    length_seconds = first.end.timestamp() - first.start.timestamp()
    if pattern.resolution_seconds > length_seconds:
        raise BadLandingPattern(
            pattern=boundary.files,
            asset=name,
            why=f"its names leave {pattern.resolution_seconds:,} seconds open, and a lot is {length_seconds:,.0f} long",
        )
