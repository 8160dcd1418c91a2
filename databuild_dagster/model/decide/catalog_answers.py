"""The catalog as a decision uses it: answers that the catalog gave before the transaction began (rule 3.3).

The catalog is Dagster, which may be slow or never answer, and a decision holds the write lock of the log. A decision that
needs another answer is made again after the catalog gave it: each round can only add answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any, NamedTuple, TypeVar, cast

from databuild_dagster.model import commands as c
from databuild_dagster.model.datasets import Catalog, DatasetSpec, InputSpec
from databuild_dagster.model.errors import Conflict
from databuild_dagster.model.refs import Ref, asset_of, partition_key_of

#: Rounds of one decision. A second one asks about the refs without a row; a later one has met another registration.
MAX_ROUNDS = 10

T = TypeVar("T")


class Question(NamedTuple):
    """Is a key a partition of a dataset? With a source: which keys of the dataset does that partition of the source wake?"""

    dataset: DatasetSpec
    partition_key: str | None
    source: InputSpec | None = None


class Unanswered(Exception):
    """A decision needs answers of the catalog that it does not have."""

    def __init__(self, questions: tuple[Question, ...]) -> None:
        super().__init__(questions)
        self.questions = questions


class CatalogAnswers:
    """The answers for one command. Without an answer a partition is assumed to exist, until `require` is called."""

    def __init__(self) -> None:
        #: By asset, partition key and source: the registration that the catalog was asked about, and its answer.
        self._known: dict[tuple[str, str | None, InputSpec | None], tuple[DatasetSpec, Any]] = {}
        self._open: list[Question] = []
        self._failed: tuple[Question, Exception] | None = None

    def why_not(self, dataset: DatasetSpec, partition_key: str | None) -> str | None:
        """As `Catalog.why_not`."""
        return cast("str | None", self._answer(Question(dataset, partition_key), None))

    def woken(self, dataset: DatasetSpec, source: InputSpec, partition_key: str | None) -> tuple[str | None, ...]:
        """As `Catalog.woken`."""
        return cast("tuple[str | None, ...]", self._answer(Question(dataset, partition_key, source), ()))

    def _answer(self, question: Question, assumed: object) -> object:
        dataset, key, source = question
        asked_about, answer = self._known.get((dataset.asset, key, source), (None, None))
        if asked_about == dataset:
            return answer
        self._open.append(question)
        return assumed

    def require(self) -> None:
        """Raises `Unanswered` if an answer was assumed."""
        if self._open:
            questions, self._open = tuple(self._open), []
            raise Unanswered(questions)

    def ask(self, catalog: Catalog, questions: Iterable[Question]) -> None:
        """Raises what the catalog raises."""
        for question in questions:
            if self._failed is not None and self._failed[0] == question:
                raise self._failed[1]
            dataset, key, source = question
            answer = catalog.why_not(dataset, key) if source is None else catalog.woken(dataset, source, key)
            self._known[dataset.asset, key, source] = dataset, answer

    def ask_ahead(self, catalog: Catalog, command: c.Command, registered: Mapping[str, DatasetSpec | None]) -> None:
        """Ask about the refs that the decision most likely checks, by registrations that may be old.

        An error of the catalog is raised by `ask`, if the decision needs that answer.
        """
        named = _NAMED.get(type(command))
        if named is None:
            return
        for ref in named(command):
            dataset, key = registered.get(asset_of(ref)), partition_key_of(ref)
            if dataset is None:
                continue
            try:
                self._known[dataset.asset, key, None] = dataset, catalog.why_not(dataset, key)
            except Exception as error:
                self._failed = Question(dataset, key), error
                return


def answered(catalog: Catalog, answers: CatalogAnswers, attempt: Callable[[CatalogAnswers], T]) -> T:
    """The result of an attempt that has every answer which it needs. Raises `Conflict` after `MAX_ROUNDS`."""
    for _ in range(MAX_ROUNDS):
        try:
            return attempt(answers)
        except Unanswered as unanswered:
            questions = unanswered.questions
        answers.ask(catalog, questions)
    raise Conflict(entity=f"the registration of {questions[0].dataset.asset}")


def _missing(command: c.MissDeps | c.BufferMissed) -> Iterable[Ref]:
    return (ref for miss in command.misses for refs in miss.impacted.values() for ref in refs)


#: The refs of a command that have no row, as a rule. About those of other commands the catalog is asked only without one.
_NAMED: dict[type[c.Command], Callable[[Any], Iterable[Ref]]] = {
    c.CreateWants: lambda command: chain.from_iterable(command.wants),
    c.BufferMissed: _missing,
    c.MissDeps: _missing,
    c.ArriveLots: lambda command: (arrival.ref for arrival in command.arrivals),
}
