"""The keys that other tools look at, compared with the log and repaired (rule 10.2)."""

from databuild_dagster.calls.contributions import Check, Checked, Repaired
from databuild_dagster.features.lots.copies.lot_copies import repair_lot_copies, wrong_lot_copies
from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.store.invariants import Violation


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
