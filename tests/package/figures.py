"""Compares the tables of the second example with pandas on the same data; runs in its folder, by its environment's Python.

It shares no line with the example: it starts from the raw table of the package `palmerpenguins`.
"""

import pandas as pd
from palmerpenguins import load_penguins_raw

from databuild_dagster import table

raw = load_penguins_raw()
raw["season"] = raw["Date Egg"].str[:4]
raw["kind"] = raw["Species"].str.split().str[0]
raw["colony"] = raw["Island"] + "|" + raw["season"]

birds = table("birds", format="pandas")
assert birds.groupby("partition_key").size().to_dict() == raw.groupby("colony").size().to_dict()
assert birds["body_mass_g"].sum() == raw["Body Mass (g)"].sum()
assert birds["delta_15_n"].count() == raw["Delta 15 N (o/oo)"].count()
assert birds.groupby("species")["delta_13_c"].mean().round(9).to_dict() == (
    raw.groupby("kind")["Delta 13 C (o/oo)"].mean().round(9).to_dict()
)

census = table("census", format="pandas").set_index(["partition_key", "island", "species"])
nests = raw.assign(full=raw["Clutch Completion"] == "Yes").groupby(["season", "Island", "kind"])["full"]
assert census["nests"].to_dict() == nests.size().to_dict()
assert census["full_clutches"].to_dict() == nests.mean().round(3).to_dict()

profile = table("profile", format="pandas").set_index(["partition_key", "sex"])
sizes = raw.assign(sex=raw["Sex"].str.lower()).groupby(["kind", "sex"])
for column, measured in {"bill_length_mm": "Culmen Length (mm)", "body_mass_g": "Body Mass (g)"}.items():
    assert profile[column].to_dict() == sizes[measured].mean().round(1).to_dict()

pages = {
    season: pd.read_table(f"pages/{season}.md", sep="|", skiprows=4, header=None) for season in sorted(set(raw.season))
}
assert {season: int(rows[3].sum()) for season, rows in pages.items()} == raw.groupby("season").size().to_dict()
