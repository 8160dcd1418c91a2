"""How the files of an input are dealt out to the parts of a lot (rule 10.4)."""

from hypothesis import given
from hypothesis import strategies as st

from databuild_dagster.model.lots import balanced

sizes = st.dictionaries(st.text("abc/0", min_size=1, max_size=6), st.integers(0, 10**12), max_size=40)


@given(sizes, st.integers(1, 12))
def test_every_file_is_in_one_bin_and_whole_and_no_bin_is_empty(files: dict[str, int], n_bins: int) -> None:
    bins = balanced(files, n_bins)

    assert sorted(name for item in bins for name in item) == sorted(files)
    assert len(bins) == min(n_bins, len(files))
    assert all(bins)


@given(sizes.filter(bool), st.integers(1, 12))
def test_no_two_bins_differ_by_more_than_the_largest_file(files: dict[str, int], n_bins: int) -> None:
    weights = [sum(files[name] for name in item) for item in balanced(files, n_bins)]

    assert max(weights) - min(weights) <= max(files.values())


@given(sizes, st.integers(1, 12), st.randoms())
def test_the_same_files_are_divided_in_the_same_way_in_any_order(
    files: dict[str, int], n_bins: int, random: object
) -> None:
    shuffled = list(files.items())
    random.shuffle(shuffled)  # type: ignore[attr-defined]

    assert balanced(dict(shuffled), n_bins) == balanced(files, n_bins)


def test_files_without_a_byte_are_spread_too() -> None:
    assert [len(item) for item in balanced(dict.fromkeys("abcdef", 0), 3)] == [2, 2, 2]


def test_an_input_without_files_has_no_bins() -> None:
    assert balanced({}, 8) == []
