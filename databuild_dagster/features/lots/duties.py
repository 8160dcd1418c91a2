"""The copies of lots, as a duty of each tick, at the end of a build, and in a thread beside its launches (rule 10.2)."""

from __future__ import annotations

from databuild_dagster.bindings.orchestration.duties import Duty, Place, Work
from databuild_dagster.bindings.registry.instance import warehouse_of
from databuild_dagster.features.lots.copies.copies_beside import CopiesBeside
from databuild_dagster.features.lots.copies.lot_copies import keep_copies, repair_lot_copies, wrong_lot_copies
from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.shapes.contributions import Check, Checked, Repaired
from databuild_dagster.store.invariants import Violation
from databuild_dagster.warehouse.storage import protocol_of


def _keep(work: Work) -> None:
    keep_copies(work.instance, work.deployment, work.datasets, head=work.head)


def _finish(place: Place, seconds: float | None) -> None:
    """What was built last is followed by no tick of the build; other tools are to find it all the same."""
    keep_copies(place.instance, place.deployment, place.datasets)


def _beside(place: Place) -> CopiesBeside | None:
    """None on a disk, where a copy takes no time."""
    if protocol_of(place.deployment.warehouse or warehouse_of(place.instance)) is None:
        return None
    return CopiesBeside(place.instance, place.deployment, place.datasets)


DUTIES = (
    Duty(
        "keep copies of lots",
        _keep,
        why="it may take minutes, and no duty before it depends on it",
        finish=_finish,
        beside=_beside,
    ),
)


def _wrong_copies(checked: Checked) -> list[Violation]:
    try:
        wrong_copies = list(wrong_lot_copies(checked.instance()))
    except DatabuildError as error:
        why = f"those that other tools look at cannot be looked through: {error.message}"
        return [Violation("rule 10.2", "keys", why)]
    found = []
    for wrong in wrong_copies:
        key = f"a key of {wrong.ref}" if wrong.ref else "a key"
        repair = "`databuild log check --repair-keys` puts it right"
        found.append(
            Violation("rule 10.2", wrong.path, f"{key} that other tools look at is wrong: {wrong.why}; {repair}")
        )
    return found


def _repair(checked: Checked) -> Repaired:
    done = repair_lot_copies(checked.instance())
    keys, refs = _counted(done.written, "key"), _counted(done.refs, "ref")
    return Repaired("keys", done._asdict(), f"{keys} written, {done.removed:,} removed, for {refs}.")


def _counted(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"


CHECKS = (Check("copies of lots", _wrong_copies, _repair),)
