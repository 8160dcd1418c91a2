"""The keys of dynamic partitions are those that Dagster has, or are left to Dagster."""

from pathlib import Path

import pytest

from databuild_dagster.bindings.registry.instance import open_instance
from databuild_dagster.data.dynamic_keys import dynamic_keys


def test_dynamic_keys_are_those_of_dagster_in_its_order(tmp_path: Path) -> None:
    with open_instance(tmp_path) as instance:
        instance.add_dynamic_partitions("stores", ["north", "it's", "east"])
        instance.add_dynamic_partitions("others", ["west"])
        instance.delete_dynamic_partition("stores", "north")
        instance.add_dynamic_partitions("stores", ["north"])

        for name in ("stores", "others", "unknown"):
            assert dynamic_keys(tmp_path, name) == list(instance.get_dynamic_partitions(name))


@pytest.mark.parametrize("section", ["storage", "event_log_storage"])
def test_dynamic_keys_that_dagster_keeps_elsewhere_are_left_to_it(tmp_path: Path, section: str) -> None:
    with open_instance(tmp_path):
        (tmp_path / "dagster.yaml").write_text(f"{section}: {{module: elsewhere, class: Elsewhere}}\n")

    assert dynamic_keys(tmp_path, "stores") is None


def test_dynamic_keys_of_a_home_without_dagsters_file_are_left_to_dagster(tmp_path: Path) -> None:
    assert dynamic_keys(tmp_path, "stores") is None
    assert not [*tmp_path.iterdir()], "a question makes no file"
