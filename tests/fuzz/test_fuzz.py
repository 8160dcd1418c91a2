"""The bounded run of CI: the corpus of each target, and the inputs of one seed. `make fuzz` runs longer, with other seeds."""

from itertools import chain
from types import ModuleType

import pytest

from . import commands, logs, manifests, requests, rules
from .fuzzing import corpus, fuzz, input_of, keep, replay

TARGETS = (commands, requests, logs, manifests, rules)
#: The same inputs in every run, so that a run fails because of a change and not by chance.
SEED = 1


@pytest.mark.long("some hundred inputs take their time")
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.NAME)
def test_a_target_survives_its_corpus_and_the_inputs_of_a_seed(target: ModuleType, tmp_path) -> None:
    """A failing input is kept in the corpus; the message has the seed and the number that make it again."""
    print(f"Seed {SEED}")
    with target.ready(tmp_path) as fed:
        findings = list(chain(replay(target.NAME, fed), fuzz(target.NAME, fed, SEED, n=target.N_IN_CI)))

    for finding in findings:
        keep(finding)
    assert not findings, "\n\n".join(map(str, findings))


class Picky:
    """Refuses even numbers."""

    def make(self, random):
        return random.randrange(100)

    def feed(self, given):
        assert given % 2, f"{given} is even"


def test_an_input_depends_on_its_seed_and_number_alone():
    assert [input_of(Picky(), 5, n) for n in range(9)] == [input_of(Picky(), 5, n) for n in range(9)]
    assert [input_of(Picky(), 5, n) for n in range(9)] != [input_of(Picky(), 6, n) for n in range(9)]


def test_a_failing_input_is_kept_once_and_fails_again_when_replayed(tmp_path):
    findings = list(fuzz("picky", Picky(), seed=5, n=50))
    for finding in findings * 2:
        keep(finding, tmp_path)

    again = list(replay("picky", Picky(), tmp_path))

    assert 0 < len(findings) < 50
    assert [finding.given for finding in again] == corpus("picky", tmp_path)
    assert set(corpus("picky", tmp_path)) == {finding.given for finding in findings}
    assert f"{findings[0].given} is even" in str(findings[0])
    assert "of seed 5" in str(findings[0])
