"""`promoters=` of `build_definitions`: the actors who may promote what an environment built (rule 16.10).

The registration of each dataset has them, so that the base knows them without user code, by its own definitions and not by those of
the environment.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import dagster as dg

from databuild_dagster.bindings.adapter.dagster_private import quiet_beta_warnings
from databuild_dagster.bindings.authoring.definers import Assets, Definer
from databuild_dagster.bindings.building.deployment import Deployment
from databuild_dagster.bindings.declare.asset_spec import body_of
from databuild_dagster.bindings.declare.parameters import InvalidAsset
from databuild_dagster.bindings.declare.settings import Setting

#: The metadata of an asset of such definitions.
PROMOTERS: Final = "databuild/promoters"
_ACTOR: Final = re.compile(r"user|(user|web|api):.+")


def _checked(given: Any, place: str) -> tuple[str, ...] | None:
    """Raises `InvalidAsset`."""
    if given is None:
        return None
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InvalidAsset(f"promoters of {place} is {given!r}; write a list, such as ['user:deploy'].")
    found = tuple(given)
    for actor in found:
        if not isinstance(actor, str) or not _ACTOR.fullmatch(actor):
            raise InvalidAsset(
                f"promoters of {place} names {actor!r}; write an actor as the event log has it: user:NAME for the command "
                "line, web:NAME for pages behind a login."
            )
    return found


def _assets(deployment: Deployment, assets: Assets) -> Assets:
    promoters = PROMOTERS_OF_LOCATION.of(deployment)
    return assets if promoters is None else [_with_promoters(asset, promoters) for asset in assets]


def _with_promoters(asset: Any, promoters: Collection[str]) -> Any:
    """Other assets are never promoted."""
    if not isinstance(asset, dg.AssetsDefinition) or body_of(asset) is None:
        return asset
    with quiet_beta_warnings():
        return asset.map_asset_specs(
            lambda spec: spec.replace_attributes(metadata={**spec.metadata, PROMOTERS: list(promoters)})
        )


def _registered(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    found = metadata.get(PROMOTERS)
    return {} if found is None else {"promoters": tuple(getattr(found, "value", found))}


PROMOTERS_OF_LOCATION: Final = Setting[tuple[str, ...] | None](
    name="promoters",
    default=lambda: None,
    checked=_checked,
    in_yaml=Sequence[str] | None,
    yaml_default=None,
    description="Who may promote what an environment built, as user:NAME or web:NAME; every writer unless given.",
    from_yaml=lambda names, place: names,
    registered=_registered,
)
SETTINGS: Final = (PROMOTERS_OF_LOCATION,)
DEFINERS: Final = (Definer(assets=_assets),)
