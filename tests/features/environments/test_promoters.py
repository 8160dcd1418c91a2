"""The actors who may promote: `promoters=` of the definitions that the base has registered (rule 16.10)."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from msgspec import UNSET
from msgspec.structs import replace

from databuild_dagster import InvalidAsset, build_definitions, databuild_asset
from databuild_dagster.bindings.registry.registration import datasets_of
from databuild_dagster.features.environments.errors import NotPromoter
from databuild_dagster.features.environments.records import given_in
from databuild_dagster.model import commands as c
from databuild_dagster.model.events import InstancesPromoted
from tests.features.environments.conftest import Shop, changed
from tests.features.environments.test_promoting import CLEANER, built, run
from tests.support.catalog import HERE


def allow(shop: Shop, *promoters: str) -> None:
    """The base registers the code of the branch, with promoters of `clean`."""
    datasets = changed(replace(CLEANER, promoters=promoters))
    shop.base.handle(c.RegisterDatasets(location=HERE, datasets=datasets))


@pytest.mark.parametrize(
    ("promoters", "named"), [(("user:deploy", "web:kate"), "user:deploy, web:kate"), ((), "nobody")]
)
def test_an_actor_who_is_not_named_promotes_nothing(shop: Shop, promoters: tuple[str, ...], named: str) -> None:
    branch = built(shop)
    allow(shop, *promoters)
    seqs = shop.base.seq, branch.seq

    with pytest.raises(NotPromoter) as refused:
        run(shop)
    rehearsed = run(shop, dry_run=True)

    facts = {"name": "branch", "actor": "user:kate", "whose": f"clean, which {named} may"}
    assert refused.value.facts == facts
    assert [(one.ref, one.why) for one in rehearsed.causes] == [("clean", f"user:kate may not promote it; {named} may")]
    assert ((shop.base.seq, branch.seq), given_in(branch.store)) == (seqs, {})


@pytest.mark.parametrize("actor", ["user:deploy", "web:kate"])
def test_the_promotion_of_a_named_actor_has_his_name(shop: Shop, actor: str) -> None:
    built(shop)
    allow(shop, "user:deploy", "web:kate")

    run(shop, actor=actor)

    (event,) = [event for event in shop.base.queries.events.after(0) if isinstance(event.fact, InstancesPromoted)]
    assert event.actor == actor


def test_a_name_that_no_login_has_confirmed_is_a_different_actor(shop: Shop) -> None:
    built(shop)
    allow(shop, "web:kate")

    with pytest.raises(NotPromoter):
        run(shop, actor="web:kate (unverified)")


def test_what_the_base_has_already_needs_no_right(shop: Shop) -> None:
    built(shop)
    allow(shop, "user:deploy")
    run(shop, "clean", actor="user:deploy")

    assert [move.ref for move in run(shop).moved] == ["report@x"]


def test_an_asset_without_promoters_is_promoted_by_every_writer(shop: Shop) -> None:
    built(shop)
    allow(shop, "user:deploy")
    run(shop, "clean", actor="user:deploy")

    assert run(shop, "report", actor="user:kate").moved


@databuild_asset
def orders() -> pd.DataFrame:
    return pd.DataFrame()


@pytest.mark.parametrize(
    ("given", "registered"),
    [
        ({}, UNSET),
        ({"promoters": None}, UNSET),
        ({"promoters": ["user:kate"]}, ("user:kate",)),
        ({"promoters": []}, ()),
    ],
    ids=["default", "none", "some", "nobody"],
)
def test_the_registration_has_the_promoters_of_the_definitions(given: dict[str, Any], registered: object) -> None:
    definitions = build_definitions([orders], **given)

    (spec,) = datasets_of(definitions.resolve_asset_graph(), "shop")

    assert spec.promoters == registered


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("user:kate", r"promoters of .* is 'user:kate'; write a list"),
        (True, "promoters of .* is True; write a list"),
        (["kate"], "promoters of .* names 'kate'; write an actor as the event log has it: user:NAME"),
        (["web:"], "promoters of .* names 'web:'"),
        ([3], "promoters of .* names 3"),
    ],
)
def test_what_is_no_actor_is_refused(given: Any, sentence: str) -> None:
    with pytest.raises(InvalidAsset, match=sentence):
        build_definitions([orders], promoters=given)
