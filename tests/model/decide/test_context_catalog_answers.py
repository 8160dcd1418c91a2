"""A decision has the answers of the catalog before it is made, or is made again with more of them (rule 3.3)."""

from __future__ import annotations

import pytest

from databuild_dagster.model import commands as c
from databuild_dagster.model.decide.context import MAX_ROUNDS, CatalogAnswers, Unanswered, answered
from databuild_dagster.model.errors import Conflict, UnknownPartition
from tests.support.catalog import SmallCatalog, dataset

SALES = dataset("sales", keys=["1", "2"])
WANT = c.CreateWants(wants=(("sales@1", "sales@2"),))


class Asked(SmallCatalog):
    """Remembers the keys that it was asked about, and raises about some."""

    def __init__(self, *datasets, away=()):
        super().__init__(datasets)
        self.asked = []
        self.away = away

    def why_not(self, dataset, partition_key):
        self.asked.append(partition_key)
        if partition_key in self.away:
            raise ConnectionError("Dagster is away")
        return super().why_not(dataset, partition_key)


def attempts_about(*keys, spec=SALES):
    """An attempt that needs an answer about each key."""

    def attempt(answers):
        found = [answers.why_not(spec, key) for key in keys]
        answers.require()
        return found

    return attempt


def test_all_answers_that_a_decision_lacks_are_asked_for_in_one_round():
    rounds = []
    attempt = attempts_about("1", "2", "3")

    found = answered(Asked(SALES), CatalogAnswers(), lambda answers: (rounds.append(1), attempt(answers))[1])

    assert found == [None, None, "'3' is not one of 1, 2"]
    assert len(rounds) == 2


def test_an_answer_that_was_asked_for_ahead_is_not_asked_for_again():
    catalog, answers = Asked(SALES), CatalogAnswers()
    answers.ask_ahead(catalog, WANT, {"sales": SALES})

    assert answered(catalog, answers, attempts_about("1", "2")) == [None, None]

    assert catalog.asked == ["1", "2"]


def test_an_answer_about_an_earlier_registration_is_not_used():
    catalog, answers = Asked(SALES), CatalogAnswers()
    answers.ask_ahead(catalog, WANT, {"sales": dataset("sales", keys=["2"])})

    assert answered(catalog, answers, attempts_about("1", "2")) == [None, None]


def test_a_ref_of_an_unregistered_asset_is_not_asked_about_ahead():
    catalog, answers = Asked(SALES), CatalogAnswers()

    answers.ask_ahead(catalog, WANT, {"sales": None})

    assert catalog.asked == []


def test_an_error_of_the_catalog_is_raised_and_the_question_is_not_repeated():
    catalog, answers = Asked(SALES, away=("1",)), CatalogAnswers()
    answers.ask_ahead(catalog, WANT, {"sales": SALES})

    with pytest.raises(ConnectionError):
        answered(catalog, answers, attempts_about("1", "2"))

    assert catalog.asked == ["1"]


def test_an_error_about_an_answer_that_no_decision_needs_is_not_raised():
    catalog, answers = Asked(SALES, away=("1",)), CatalogAnswers()
    answers.ask_ahead(catalog, WANT, {"sales": SALES})

    assert answered(catalog, answers, attempts_about("2")) == [None]


def test_the_rounds_of_a_decision_have_a_bound():
    """Each round meets another registration."""
    versions = iter(range(MAX_ROUNDS + 1))

    def attempt(answers):
        spec = dataset("sales", code_version=str(next(versions)))
        answers.why_not(spec, None)
        answers.require()

    with pytest.raises(Conflict, match="sales"):
        answered(Asked(SALES), CatalogAnswers(), attempt)


def test_nothing_is_required_twice():
    answers = CatalogAnswers()
    answers.why_not(SALES, "1")
    with pytest.raises(Unanswered) as unanswered:
        answers.require()

    answers.require()

    assert [question.partition_key for question in unanswered.value.questions] == ["1"]


def test_the_first_bad_ref_is_named_whichever_answers_are_known(make_world):
    """Rule 5.7: no ref is refused on the assumption that another one exists."""
    world = make_world(SALES)

    with pytest.raises(UnknownPartition, match="sales@9"):
        world.handle(c.CreateWants(wants=(("sales@9", "unknown"),)))
