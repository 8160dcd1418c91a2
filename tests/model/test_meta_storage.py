"""The meta storage's statements, as a table of vectors for each condition and branch (rule 9.1)."""

from __future__ import annotations

import pytest

from databuild_dagster.model.errors import InvalidRequest
from databuild_dagster.model.meta_storage import (
    LAST,
    MAX_DEPTH,
    MAX_KEY_BYTES,
    MAX_VALUE_BYTES,
    Draft,
    Entry,
    Put,
    Remove,
    RemovePrefix,
    as_read,
    both,
    check_statements,
    do,
    either,
    exists,
    holds,
    iif,
    not_exists,
    not_tombstone,
    revision_is,
    tombstone,
    value_is,
)

DATABASES = ()

#: `live` was put by revision 7, `gone` removed by revision 5, `never` is not there.
ENTRIES = {"live": Entry("live", b"m", 7), "gone": Entry("gone", None, 5)}

YES, NO = both(), either()

CONDITIONS = [
    (exists, "live", True), (exists, "gone", False), (exists, "never", False),
    (not_exists, "live", False), (not_exists, "gone", True), (not_exists, "never", True),
    (tombstone, "live", False), (tombstone, "gone", True), (tombstone, "never", False),
    (not_tombstone, "live", True), (not_tombstone, "gone", False), (not_tombstone, "never", True),
]  # fmt: skip

#: Of (the operand below, equal, above) what is true of the value `m`.
COMPARED = {
    "eq": (False, True, False),
    "ne": (True, False, True),
    "lt": (False, False, True),
    "le": (False, True, True),
    "gt": (True, False, False),
    "ge": (True, True, False),
}
VALUES = (b"l", b"m", b"m\x00")
REVISIONS = {"live": (6, 7, 8), "gone": (4, 5, 6), "never": (-1, 0, 1)}


@pytest.mark.parametrize(("test", "key", "expected"), CONDITIONS)
def test_a_key_is_tested_by_itself(test, key, expected):
    assert holds(test(key), ENTRIES.get) is expected


@pytest.mark.parametrize("how", COMPARED)
def test_a_value_is_compared_byte_by_byte(how):
    assert tuple(holds(value_is("live", how, operand), ENTRIES.get) for operand in VALUES) == COMPARED[how]


@pytest.mark.parametrize("key", ["gone", "never"])
@pytest.mark.parametrize("how", COMPARED)
def test_what_does_not_exist_has_no_value_so_it_only_differs(how, key):
    """Rule 9.1: a removed key counts as not existing."""
    found = {holds(value_is(key, how, operand), ENTRIES.get) for operand in (b"", *VALUES)}

    assert found == {how == "ne"}


@pytest.mark.parametrize("key", REVISIONS)
@pytest.mark.parametrize("how", COMPARED)
def test_a_revision_is_compared_and_is_0_for_what_never_was(how, key):
    assert tuple(holds(revision_is(key, how, operand), ENTRIES.get) for operand in REVISIONS[key]) == COMPARED[how]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (both(), True), (both(YES), True), (both(YES, NO), False), (both(NO, YES), False), (both(YES, YES), True),
        (either(), False), (either(NO), False), (either(YES, NO), True), (either(NO, YES), True),
        (both(either(NO, YES), both(YES)), True), (either(both(YES, NO), both(NO)), False),
    ],
)  # fmt: skip
def test_conditions_are_put_together(condition, expected):
    assert holds(condition, ENTRIES.get) is expected


@pytest.mark.parametrize("key", ["live", "gone", "never"])
def test_what_was_read_is_as_it_was_read_until_it_changes(key):
    entry = ENTRIES.get(key) or Entry(key, None, 0)

    assert holds(as_read(entry), ENTRIES.get)
    assert not holds(as_read(entry), {key: Entry(key, b"other", 9)}.get)


# Branches

A, B, C = do(Put("a", b"1"), yields=b"a"), do(Put("b", b"1"), yields=2), do(Remove("live"), yields=False)


@pytest.mark.parametrize(
    ("statement", "value", "writes"),
    [
        (do(), None, {}),
        (iif(YES, A, B), b"a", {"a": b"1"}),
        (iif(NO, A, B), 2, {"b": b"1"}),
        (iif(YES), True, {}),
        (iif(NO), False, {}),
        (iif(YES, iif(NO, A, B), C), 2, {"b": b"1"}),
        (iif(YES, iif(YES, A, B), C), b"a", {"a": b"1"}),
        (iif(NO, A, iif(NO, B, C)), False, {"live": None}),
        (iif(NO, A, iif(NO, B, iif(exists("live"), A, C))), b"a", {"a": b"1"}),
    ],
)
def test_one_branch_is_taken_and_yields_its_value(statement, value, writes):
    draft = Draft(ENTRIES.get, 9)

    assert draft.run(statement) == value
    assert draft.writes == writes


@pytest.mark.parametrize(
    ("ops", "writes", "cleared"),
    [
        ([Put("live", b"n")], {"live": b"n"}, []),
        ([Put("x", b"1"), Put("x", b"2")], {"x": b"2"}, []),
        ([Put("x", b"1"), Remove("x")], {"x": None}, []),
        ([Remove("live"), Put("live", b"m")], {"live": b"m"}, []),
        ([Remove("gone"), Remove("never")], {}, []),
        ([RemovePrefix("li")], {}, ["li"]),
        ([Put("lift", b"1"), RemovePrefix("li")], {}, ["li"]),
        ([Put("live", b"1"), RemovePrefix("li")], {"live": None}, ["li"]),
        ([RemovePrefix("li"), Put("live", b"1")], {"live": b"1"}, ["li"]),
        ([RemovePrefix("li"), Remove("live")], {}, ["li"]),
    ],
)
def test_operations_are_applied_one_after_another(ops, writes, cleared):
    draft = Draft(ENTRIES.get, 9)

    draft.run(do(*ops))

    assert (draft.writes, draft.cleared) == (writes, cleared)


@pytest.mark.parametrize(
    ("ops", "condition", "expected"),
    [
        ([Put("x", b"1")], value_is("x", "eq", b"1"), True),
        ([Put("x", b"1")], revision_is("x", "eq", 9), True),
        ([Remove("live")], tombstone("live"), True),
        ([RemovePrefix("l")], not_exists("live"), True),
        ([RemovePrefix("l")], revision_is("live", "eq", 9), True),
        ([RemovePrefix("g")], revision_is("gone", "eq", 5), True),
        ([RemovePrefix("l"), Put("live", b"2")], exists("live"), True),
    ],
)
def test_a_statement_sees_what_those_before_it_did(ops, condition, expected):
    draft = Draft(ENTRIES.get, 9)
    draft.run(do(*ops))

    assert draft.run(iif(condition)) is expected


# Bad input


def nested(depth):
    return do() if depth == 0 else iif(YES, nested(depth - 1))


@pytest.mark.parametrize(
    "statement",
    [
        do(Put("", b"")),
        do(Remove("a\0b")),
        iif(exists(f"a{LAST}")),
        do(RemovePrefix("")),
        do(Put("\ud800", b"")),
        do(Put("k" * (MAX_KEY_BYTES + 1), b"")),
        do(Put("ü" * (MAX_KEY_BYTES // 2 + 1), b"")),
        do(Put("k", bytes(MAX_VALUE_BYTES + 1))),
        nested(MAX_DEPTH + 1),
    ],
    ids=["empty", "NUL", "the last character", "everything", "a surrogate", "long", "long in bytes", "large", "deep"],
)
def test_what_cannot_be_kept_is_refused(statement):
    with pytest.raises(InvalidRequest):
        check_statements([statement])


def test_the_longest_key_the_largest_value_and_the_deepest_statement_are_taken():
    statements = [do(Put("k" * MAX_KEY_BYTES, bytes(MAX_VALUE_BYTES))), nested(MAX_DEPTH)]

    assert check_statements(statements) == ["k" * MAX_KEY_BYTES]
