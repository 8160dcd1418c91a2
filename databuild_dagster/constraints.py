"""What can be asked of every row of a dataset, for `validate` (rule 9.8): `ValidateArg(constraints=(NotNull("buyer"),))`.

This module makes them public; their classes say what each means.
"""

from databuild_dagster.model.constraints import (
    AcceptedValues,
    AnyConstraint,
    BadConstraint,
    Expression,
    NarrowType,
    NotNull,
    Range,
    Regex,
    Unique,
)

__all__ = [
    "AcceptedValues",
    "AnyConstraint",
    "BadConstraint",
    "Expression",
    "NarrowType",
    "NotNull",
    "Range",
    "Regex",
    "Unique",
]
