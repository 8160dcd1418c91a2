"""Announcements of lots name the lot id (rule 10.3)."""

from __future__ import annotations

import dagster as dg
from msgspec.structs import replace

from databuild_dagster.bindings.registry.lot_partitions import announced_lots
from databuild_dagster.bindings.registry.registration import partitions_text
from databuild_dagster.model import commands as c
from tests.support.catalog import HERE, dataset
from tests.support.world import World

HOUR = "2023-02-27-23:00"


def test_an_announcement_names_the_lot_id_if_the_partition_is_a_lot():
    """Rule 10.3"""
    world = World([dataset("clicks", keys=[HOUR]), dataset("countries", keys=["de"]), dataset("gone")])
    world.live(f"clicks@{HOUR}", "countries@de", "gone")
    definitions = {
        "clicks": dg.HourlyPartitionsDefinition("2023-02-27-00:00"),
        "countries": dg.StaticPartitionsDefinition(["de"]),
    }
    datasets = tuple(replace(spec, partitions=partitions_text(definitions[spec.asset])) for spec in world.specs[:2])
    world.handle(c.RegisterDatasets(location=HERE, datasets=datasets))

    found = list(announced_lots(world.queries, 0, follow=False))

    assert [(lot.ref, lot.lot) for lot in found] == [
        (f"clicks@{HOUR}", "20230227PT1H023"),
        ("countries@de", None),
        ("gone", None),
    ]
