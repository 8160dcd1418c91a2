"""Probes beside the ticks (rule 6.17)."""

from types import SimpleNamespace

from databuild_dagster.bindings.orchestration.probing import FIRST_PAUSE_SECONDS, Prober, probe_outages
from databuild_dagster.engine.outages import begin_outage, outages
from databuild_dagster.model.surroundings import Surrounding
from tests.support.catalog import HERE, dataset
from tests.support.world import World


def refuse() -> None:
    raise OSError("no route to host")


def asked(prober: Prober, now: float) -> bool:
    """Whether a question that begins now has an answer."""
    assert not prober.passed(now), "its answer comes with a later look"
    assert prober.running is not None
    prober.running.exception(timeout=250)
    return prober.passed(now)


def test_a_prober_asks_again_after_pauses_that_grow_and_says_a_reason_once(caplog) -> None:
    """The job run that began the outage may have had another reason."""
    prober = Prober(refuse)

    assert not asked(prober, 0.0)
    assert not prober.passed(FIRST_PAUSE_SECONDS / 2)
    assert prober.running is None
    assert not asked(prober, FIRST_PAUSE_SECONDS)

    assert prober.next_at == FIRST_PAUSE_SECONDS + 2 * FIRST_PAUSE_SECONDS
    assert caplog.text.count("no route to host") == 1


def test_an_answer_of_the_last_outage_does_not_end_the_next_one() -> None:
    """A person released the last one while the question was asked."""
    world = World([dataset("a")])
    asks = dict.fromkeys(Surrounding, Prober(lambda: None))
    asked(asks[Surrounding.SPARK], 0.0)
    asks[Surrounding.SPARK].passed(0.0)
    world.engine.memory.put((probe_outages, HERE), asks)
    work = SimpleNamespace(
        engine=world.engine,
        deployment=SimpleNamespace(location=HERE),
        report=SimpleNamespace(out_of_reach=frozenset()),
    )
    probe_outages(work)  # type: ignore[arg-type]

    begin_outage(world.engine, HERE, Surrounding.SPARK, "no answer", "job run")

    assert not asks
    assert len(outages(world.engine, HERE)) == 1
