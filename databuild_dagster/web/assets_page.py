"""The page of all assets: the states of all partitions of each, the assets with trouble first.

Trouble is a partition that failed, failed because of an input, or is tainted. Counts come from the store; the number of partitions
that nothing has built is what the definition has beyond them.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from databuild_dagster.calls.calendar_keys import keys_of
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.records import extended
from databuild_dagster.model.states import TROUBLE, WORST_FIRST
from databuild_dagster.web.parameters import choice, flag, number, text
from databuild_dagster.web.routes import ApiRoute, Ask, Page, parameters_of
from databuild_dagster.web.state import State

#: Datasets in an answer.
MAX_DATASETS: Final = 50
_BY_TROUBLE, _BY_NAME = "trouble", "name"
_DIGITS = re.compile(r"(\d+)")


class ShownDataset(msgspec.Struct, frozen=True):
    """A dataset: who builds it, who owns it, and its partitions by state."""

    dataset: str
    kind: str
    job: str
    location: str
    #: The group and the owners in Dagster; null for Dagster's default group.
    group: str | None
    owners: list[str]
    inputs: list[str]
    #: The partitions that exist now.
    n: int
    #: The partitions that nothing has built.
    n_missing: int
    #: The other partitions, the worst state first. The counts of a large store may be two minutes old.
    states: dict[str, int]


class DatasetsPage(msgspec.Struct, frozen=True):
    """The datasets of a page, of `n` that the filters admit; and the groups and owners of all datasets."""

    n: int
    offset: int
    groups: list[str]
    owners: list[str]
    datasets: list[ShownDataset]


def natural(name: str) -> list[tuple[int, str]]:
    """The key of the order in which people count: c1, c2, c10."""
    return [(int(part), "") if part.isdecimal() else (-1, part.casefold()) for part in _DIGITS.split(name)]


def datasets(
    state: State,
    search: str | None,
    group: str | None,
    owner: str | None,
    trouble: bool,
    order: str | None,
    limit: int,
    offset: int,
) -> DatasetsPage:
    """The datasets, the datasets with most trouble first, then by name."""
    engine = state.engine
    every = list(engine.queries.datasets.all().values())
    counts: dict[str, dict[str, int]] = {}
    for asset, instance_state, n in state.kept("ref_counts", engine.queries.datasets.ref_counts):
        counts.setdefault(asset, {})[instance_state] = n
    n_troubled = {spec.asset: _n_troubled(counts.get(spec.asset, {})) for spec in every}
    admitted = [
        spec
        for spec in every
        if (search or "").lower() in spec.asset.lower()
        and group in (None, spec.group or None)
        and (owner is None or owner in (spec.owners or ()))
        and (not trouble or n_troubled[spec.asset])
    ]
    admitted.sort(key=lambda spec: (0 if order == _BY_NAME else -n_troubled[spec.asset], natural(spec.asset)))
    shown = [
        _shown(spec, len(keys_of(spec, state.instance, engine.clock())), counts.get(spec.asset, {}))
        for spec in admitted[offset : offset + limit]
    ]
    groups = _names(spec.group for spec in every if spec.group)
    owners = _names(owner for spec in every for owner in spec.owners or ())
    return DatasetsPage(len(admitted), offset, groups, owners, shown)


def _n_troubled(states: Mapping[str, int]) -> int:
    return sum(states.get(state, 0) for state in TROUBLE)


def _shown(spec: DatasetSpec, n: int, states: Mapping[str, int]) -> ShownDataset:
    return extended(
        ShownDataset,
        spec,
        dataset=spec.asset,
        group=spec.group or None,
        owners=list(spec.owners or ()),
        inputs=[declared.asset for declared in spec.inputs],
        n=n,
        n_missing=max(n - sum(states.values()), 0),
        states={state.value: states[state] for state in WORST_FIRST if state in states},
    )


def _names(found: Iterable[str]) -> list[str]:
    return sorted(set(found), key=natural)


ROUTES: Final = (
    ApiRoute(
        "/datasets",
        "The datasets with the states of their partitions, those with most trouble first.",
        datasets,
        DatasetsPage,
        (
            text("search", "A part of the names."),
            text("group", "Only datasets of this group of Dagster's."),
            text("owner", "Only datasets of this owner."),
            flag("trouble", "Only datasets with partitions that failed or are tainted."),
            choice("order", "By trouble, which is the default, or by name.", [_BY_TROUBLE, _BY_NAME]),
            number("limit", "The number of datasets at most.", MAX_DATASETS, 1, MAX_DATASETS),
            number("offset", "The number of datasets before the first.", 0, 0, 1_000_000),
        ),
    ),
)


def _assets(ask: Ask, values: dict[str, Any]) -> dict[str, Any]:
    filters = {name: values[name] for name in ("search", "group", "owner", "trouble", "order")}
    return {"values": values, "filters": filters, "found": ask("datasets", **values)}


PAGE: Final = Page("/assets", "assets.html", _assets, parameters_of(ROUTES, "/datasets"), entry="Assets")
