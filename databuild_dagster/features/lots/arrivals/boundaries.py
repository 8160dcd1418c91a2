"""`databuild_boundary`: a dataset whose lots are files of other programs, declared as an external asset (rule 10.6).

The asset's metadata has the options, so that the asset graph identifies the boundary and the UI shows its folder. A sensor
watches a boundary with `files`; lots of any other boundary arrive by `databuild lot arrive`. Options that cannot work are refused
at import.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC
from typing import TYPE_CHECKING, Any, Final, Literal, Unpack, cast
from zoneinfo import ZoneInfo

import msgspec
from dagster import AssetKey, AssetSpec, MetadataValue, PartitionsDefinition, TimeWindowPartitionsDefinition

from databuild_dagster.bindings.adapter.keys import BOUNDARY, IO_MANAGER
from databuild_dagster.bindings.declare.parameters import InvalidAsset, why_out_of_bounds
from databuild_dagster.bindings.declare.settings import metadata_of, taken_out
from databuild_dagster.features.lots.arrivals.landing import BadLandingPattern, LandingPattern
from databuild_dagster.model.wording import number_in_words

if TYPE_CHECKING:
    from databuild_dagster.features.settings import BoundaryOptions
else:
    # `typing.get_type_hints` evaluates the annotation.
    BoundaryOptions = dict

DEFAULT_GRACE_SECONDS = 60.0
DEFAULT_SETTLE_SECONDS = 10.0
DEFAULT_INTERVAL_SECONDS = 30

#: Options in seconds: name, description of its type, types, minimum.
_SECONDS: Final = (
    ("grace_seconds", "a number", (int, float), 0),
    ("settle_seconds", "a number", (int, float), 0),
    ("interval_seconds", "a whole number", (int,), 1),
)


@dataclass(frozen=True, slots=True)
class Boundary:
    """How files become lots."""

    #: The landing folder with the pattern of file names; None if no sensor watches.
    files: str | None = None
    by: Literal["name", "modified"] = "name"
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    #: An interval without files makes an empty lot.
    empty: bool = False
    #: Time between the end of an interval and its lot.
    grace_seconds: float = DEFAULT_GRACE_SECONDS
    #: A file on a disk is complete when it has not changed for so long.
    settle_seconds: float = DEFAULT_SETTLE_SECONDS
    allow_schema_change: bool = False
    interval_seconds: int = DEFAULT_INTERVAL_SECONDS

    def pattern(self, asset: str, partitions: PartitionsDefinition | None) -> LandingPattern:
        """The parsed `files`. Raises `BadLandingPattern`."""
        assert self.files is not None, "a boundary without a sensor has no pattern"
        zone = partitions.timezone if isinstance(partitions, TimeWindowPartitionsDefinition) else "UTC"
        timezone = UTC if zone == "UTC" else ZoneInfo(zone)
        return LandingPattern(self.files, asset, timezone, self.by == "name", self.include, self.exclude)


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
    **options: Unpack[BoundaryOptions],
) -> AssetSpec:
    """An external asset whose lots are Parquet files of other programs; pass it to `build_definitions`.

    `files` is the path or url of the files: `'landing/flights_{time:%Y%m%dT%H%M}*.parquet'`. With `by="modified"` it has
    no time, and the time of modification counts. A sensor lists the files every `interval_seconds` and records a lot
    `grace_seconds` after the end of its interval. A later file is late data: a new instance of the lot. `include` and
    `exclude` are globs of names, or of paths below the folder. `empty=True` makes an interval without files an empty lot.
    A file on a disk counts when it has not changed for `settle_seconds`. Without `files`, lots arrive only by
    `databuild lot arrive`. `publish=Iceberg(…)` keeps a table of the lots. `sample=True` lets the pages
    show a few rows. All other `options` are passed to the `AssetSpec`.
    Raises `InvalidAsset`, `BadLandingPattern`.
    """
    name = AssetKey.from_coercible(key).to_user_string()
    globs = _globs(include), _globs(exclude)
    boundary = Boundary(files, by, *globs, empty, grace_seconds, settle_seconds, allow_schema_change, interval_seconds)
    _check(name, boundary, partitions_def)
    of_spec = cast(dict[str, Any], dict(options))
    of_features = taken_out(of_spec, has_function=False)
    own: dict[str, Any] = {
        BOUNDARY: MetadataValue.json(asdict(boundary)),
        **metadata_of(name, of_features),
    }
    if files is not None:
        own["databuild/files"] = MetadataValue.text(files)
    asset = AssetSpec(key, partitions_def=partitions_def, metadata={**(metadata or {}), **own}, **of_spec)
    # Plain assets read its lots with the IO manager that reads our instances.
    return asset.with_io_manager_key(IO_MANAGER)


def boundary_of(spec: Any) -> Boundary | None:
    """The boundary of an asset's spec or graph node; None if the asset is no boundary."""
    value = spec.metadata.get(BOUNDARY)
    return None if value is None else msgspec.convert(getattr(value, "data", value), Boundary)


def _globs(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _check(name: str, boundary: Boundary, partitions: PartitionsDefinition) -> None:
    """Raises `InvalidAsset`, `BadLandingPattern`."""
    if not isinstance(partitions, PartitionsDefinition):
        raise InvalidAsset(f"Boundary {name!r} has no partitions_def; give it one, because each lot is a partition.")
    if boundary.by not in ("name", "modified"):
        raise InvalidAsset(f"Boundary {name!r} has by={boundary.by!r}; write by='name' or by='modified'.")
    for option, kind, types, least in _SECONDS:
        value = getattr(boundary, option)
        is_number = isinstance(value, types) and not isinstance(value, bool)
        if not is_number or not (isinstance(value, int) or math.isfinite(value)):
            raise InvalidAsset(f"{option} of boundary {name!r} is {value!r}; it must be {kind}, and at least {least}.")
        if why := why_out_of_bounds(value, least):
            raise InvalidAsset(f"{option} of boundary {name!r} is {number_in_words(value)}; {why}.")
    if boundary.files is None:
        if boundary.empty or boundary.include or boundary.exclude or boundary.by == "modified":
            raise InvalidAsset(f"Boundary {name!r} has options for watched files and no files; give it files=….")
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
