"""Reasons to set aside (rule 11.7)."""

from __future__ import annotations

from databuild_dagster.model import commands as c
from databuild_dagster.model import events as e
from databuild_dagster.model.decide.context import Deciding
from databuild_dagster.model.set_aside import same_reason, subject_of


def change_set_aside(command: c.ChangeSetAside, deciding: Deciding) -> list[e.Fact]:
    """Only new reasons are facts: another tick may have recorded the same."""
    changes = []
    for change in command.changes:
        subjects = {name: subject_of(command.location, change.kind, name) for name in change.names}
        known = deciding.view.asides(subjects.values())
        reasons = {name: row.reason for name, key in subjects.items() if (row := known.get(key)) is not None}
        if names := tuple(name for name in subjects if not same_reason(reasons.get(name), change.reason)):
            changes.append(e.AsideFact(kind=change.kind, names=names, reason=change.reason))
    return [e.SetAsideChanged(location=command.location, changes=tuple(changes))] if changes else []
