"""The world outside of the pipeline: field teams that send files, and a laboratory that keeps its results.

    python -m penguins.fieldwork 2007             # the files of a season
    python -m penguins.fieldwork 2008 Torgersen   # the files of one island

Both take their rows from the package `palmerpenguins`: 344 adult penguins, measured near Palmer Station.
"""

import sys
from collections.abc import Collection
from functools import cache
from pathlib import Path

import pandas as pd
from palmerpenguins import load_penguins_raw

from penguins.partitions import ISLANDS

#: Where the field teams put their files, below the folder in which `databuild` runs.
LANDING = Path("landing")

_MEASURED = {
    "Island": "island",
    "Species": "species",
    "Date Egg": "egg_date",
    "Clutch Completion": "full_clutch",
    "Culmen Length (mm)": "bill_length_mm",
    "Culmen Depth (mm)": "bill_depth_mm",
    "Flipper Length (mm)": "flipper_length_mm",
    "Body Mass (g)": "body_mass_g",
}
_FROM_BLOOD = {"Sex": "sex", "Delta 15 N (o/oo)": "delta_15_n", "Delta 13 C (o/oo)": "delta_13_c"}


def send(season: str, islands: Collection[str], landing: Path = LANDING) -> list[Path]:
    """Write the measurements of a season on these islands, a file for each day and island."""
    birds = _birds_of(season)
    measured = birds[birds.island.isin(islands)][["sample", *_MEASURED.values()]]
    landing.mkdir(parents=True, exist_ok=True)
    sent = []
    for (day, island), rows in measured.groupby(["egg_date", "island"]):
        path = landing / f"{day}_{island}.parquet"
        # A reader never sees half a file: the name ends with .part until the file is whole.
        unfinished = path.with_suffix(".part")
        rows.to_parquet(unfinished, index=False)
        sent.append(unfinished.rename(path))
    return sent


def lab_results_of(season: str) -> pd.DataFrame:
    """The findings from the blood of a season's birds: sex, and isotopes of nitrogen and carbon."""
    return _birds_of(season)[["sample", *_FROM_BLOOD.values()]]


def _birds_of(season: str) -> pd.DataFrame:
    birds = _all_birds()
    return birds[birds.season == season].reset_index(drop=True)


@cache
def _all_birds() -> pd.DataFrame:
    birds = load_penguins_raw().rename(columns=_MEASURED | _FROM_BLOOD)
    birds["species"] = birds.species.str.split().str[0]
    birds["sample"] = birds.studyName + "-" + birds.species + "-" + birds["Sample Number"].astype(str)
    birds["season"] = birds.egg_date.str[:4]
    birds["full_clutch"] = birds.full_clutch == "Yes"
    birds["sex"] = birds.sex.str.lower()
    return birds


if __name__ == "__main__":
    season, *islands = sys.argv[1:]
    print(f"{len(send(season, islands or ISLANDS))} files are in {LANDING}.")
