"""Damaged data is named by its ref, with the command that repairs it (rule 6.16)."""

import pytest

from databuild_dagster.data.read_plan import DamagedData, damage_named
from databuild_dagster.model.refs import Ref
from databuild_dagster.warehouse.errors import NewerManifest, UnreadableFile
from tests.support.catalog import dataset

REFS = {"uuid-1": Ref("days@1"), "uuid-2": Ref("days@2")}
DAYS = dataset("days", keys=["1", "2"])


def test_an_unreadable_file_is_named_by_the_ref_whose_instance_it_is_in():
    with pytest.raises(DamagedData) as raised, damage_named(DAYS, REFS):
        raise UnreadableFile(path="/warehouse/instance=uuid-2/part-0", why="it is cut short")

    assert str(raised.value) == (
        "days@2 is damaged in instance uuid-2: /warehouse/instance=uuid-2/part-0 cannot be read: it is cut short. "
        "`databuild build --rebuild days@2` builds it again."
    )


def test_a_file_of_another_program_is_named_by_the_one_ref_that_lists_it():
    with pytest.raises(DamagedData, match="^days@1 is damaged"), damage_named(DAYS, {"uuid-1": REFS["uuid-1"]}):
        raise UnreadableFile(path="/landing/day.parquet", why="it is cut short")


@pytest.mark.parametrize(
    "error",
    [UnreadableFile(path="/landing/day.parquet", why="…"), NewerManifest(path="/x/uuid-1", found=9, known=1)],
)
def test_damage_of_unknown_refs_and_other_trouble_keep_their_own_message(error):
    with pytest.raises(type(error)), damage_named(DAYS, REFS):
        raise error
