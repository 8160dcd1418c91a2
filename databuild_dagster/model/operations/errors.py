"""What can be refused about an operation (SPEC 9.3, 9.5)."""

from __future__ import annotations

from databuild_dagster.model.errors import Conflict, Refused


class UnknownOperationType(Refused):
    """No operation of type {type_name!r} is known here, only {known}."""

    hint = "Load the code location that registers it: build_definitions(operations=[…])."


class NewerOperation(Refused):
    """Operation {id} is of newer code: {why}."""

    hint = "Install that version here too, or cancel it: `databuild operation cancel {id}`."


class NewerOperations(NewerOperation):
    """What runs on {dataset} is listed by newer code, in another shape than any that is known here."""

    hint = "Install that version here too."


class IncompatibleOperation(Refused):
    """{type_name} cannot start on {dataset}: {why}."""

    hint = "Wait until that has ended, or cancel it: `databuild operation list`."


class InvalidOperation(Refused):
    """{type_name} cannot start on {dataset}: {why}."""


class OperationRace(Conflict):
    """Another operation on {dataset} was started or ended in the same moment, so {type_name} was not started."""

    hint = "Nothing was recorded; start it again."


class LeaseLost(Conflict):
    """The job of operation {id} on {partition!r} is not this executor's any more."""

    hint = "Stop, and touch nothing: another executor has it, or the operation has ended."
