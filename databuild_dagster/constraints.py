"""What can be asked of every row of a dataset, for `validate` (rule 9.8): `ValidateArg(constraints=(NotNull("buyer"),))`.

Here they are public; what each means is told where they are made.
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
