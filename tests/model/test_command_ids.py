"""The ids of commands: what they may be, and which of them are the same command with another request (rule 3.3)."""

from __future__ import annotations

import pytest

from databuild_dagster.model.command_ids import bare, is_of_another_request, is_possible, of_attempt, with_fingerprint

DATABASES = ()


@pytest.mark.parametrize(
    "other", [["anna", ["refs", "b"]], ["anna"], ["anna", ["refs", "a"], ["refs", "b"]], ["annarefs", "a"]]
)
def test_a_fingerprint_differs_with_each_part_of_the_request(other):
    asked = ["anna", ["refs", "a"]]

    assert with_fingerprint("x", asked) == with_fingerprint("x", list(asked))
    assert with_fingerprint("x", asked) != with_fingerprint("x", other)


def test_an_id_with_a_fingerprint_is_possible_for_any_text():
    id = with_fingerprint("web/want/x", ["\ud800", ["a", "\0é"]])

    assert is_possible(id)
    assert bare(id) == "web/want/x"


@pytest.mark.parametrize("id", ["", "#", "a#", "a#1", "a#=", "a#=xyz", "a\0", "#=" + "0" * 32, "a#=" + "0" * 33])
def test_an_id_that_could_be_that_of_another_event_is_not_possible(id):
    assert not is_possible(id)


def test_an_id_without_a_fingerprint_is_of_no_other_request():
    first = with_fingerprint("x", ["a"])

    assert [is_of_another_request("x", recorded) for recorded in ("x", first)] == [False, False]
    assert [is_of_another_request(first, recorded) for recorded in ("x", first)] == [True, False]
    assert is_of_another_request(with_fingerprint("x", ["b"]), first)


def test_a_further_attempt_keeps_the_fingerprint():
    id = with_fingerprint("x", ["a"])

    assert of_attempt(None, 3) is None
    assert (of_attempt("x", 0), of_attempt("x", 2)) == ("x", "x/2")
    assert of_attempt(id, 2) == id.replace("x#", "x/2#")
