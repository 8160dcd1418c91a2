from pathlib import Path

import dagster as dg
import pandas as pd
import pytest
from databuild_dagster import BuildContext, databuild_asset, read
from databuild_dagster.testing import build_context

from penguins.partitions import ISLANDS, by_colony
from penguins.reports.definitions import defs
from penguins.reports.seasons import census, season_page
from penguins.reports.species import profile


@databuild_asset(partitions_def=by_colony)
def birds(context: BuildContext) -> pd.DataFrame:
    """Two birds for each colony, in place of those of the research team."""
    island = context.partition_key.partition("|")[0]
    return pd.DataFrame({"island": [island] * 2, "species": ["Adelie"] * 2, "full_clutch": [True, False]})


def test_the_definitions_load() -> None:
    dg.Definitions.validate_loadable(defs)


def test_a_profile_has_the_means_of_its_species_alone() -> None:
    sizes = {"bill_length_mm": 40.0, "bill_depth_mm": 18.0, "flipper_length_mm": 190.0}
    rows = [("Gentoo", "male", 5400), ("Gentoo", "male", 5600), ("Gentoo", None, 9999), ("Adelie", "male", 4000)]
    caught = pd.DataFrame(rows, columns=["species", "sex", "body_mass_g"]).assign(**sizes)

    means = profile(caught, build_context(profile, partition_key="Gentoo"))

    assert means[["sex", "body_mass_g"]].to_dict("records") == [{"sex": "male", "body_mass_g": 5500.0}]


def test_a_season_is_counted_over_its_islands_and_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with dg.DagsterInstance.ephemeral() as instance:
        for island in ISLANDS:
            dg.materialize([birds], partition_key=f"{island}|2007", instance=instance)

        selection = [census, season_page]
        dg.materialize([birds, *selection], selection=selection, partition_key="2007", instance=instance)

        counted = read("census@2007", format="pandas", instance=instance)

    assert counted.to_dict("list") == {
        "island": ISLANDS,
        "species": ["Adelie"] * 3,
        "nests": [2] * 3,
        "full_clutches": [0.5] * 3,
    }
    assert "| Dream | Adelie | 2 | 50% |" in (tmp_path / "pages" / "2007.md").read_text()
