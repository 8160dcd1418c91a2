"""What a reader of one part may ignore: the core imports no feature, a feature only those that it names (`tools.reach`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from databuild_dagster.feature import built_in
from databuild_dagster.features import BUILT_IN
from tools.reach import FEATURES, LIMITS, PACKAGE, Modules, feature_of, measured

MODULES = Modules.of(Path(__file__).parents[1] / PACKAGE)
#: The list itself, and the types of its options.
OF_THE_LIST = {FEATURES, f"{FEATURES}.settings"}


def test_no_module_outside_of_the_features_imports_one() -> None:
    outside = [name for name in MODULES.files if not name.startswith(FEATURES)]

    imports = {(name, found) for name in outside for found in MODULES.imports[name] if found.startswith(FEATURES)}

    assert imports == set()


def test_a_feature_imports_only_the_features_that_it_needs() -> None:
    needs = {feature.name: {feature.name, *feature.needs} for feature in built_in()}

    strangers = {
        (name, found)
        for name in MODULES.files
        if (own := feature_of(name)) is not None and name not in OF_THE_LIST
        for found in MODULES.imports[name]
        if (other := feature_of(found)) is not None and other not in needs[own]
    }

    assert strangers == set()


def test_every_folder_of_a_feature_is_in_the_list_after_those_that_it_needs() -> None:
    folders = {name for module in MODULES.files if (name := feature_of(module)) is not None} - {"settings"}

    assert folders == set(BUILT_IN)
    assert [feature.name for feature in built_in()] == list(BUILT_IN)


@pytest.mark.parametrize("door", LIMITS)
def test_a_door_reaches_no_more_lines_than_its_limit(door: str) -> None:
    assert measured(MODULES)[door] <= LIMITS[door]
