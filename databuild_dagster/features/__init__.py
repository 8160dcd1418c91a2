"""The features: each is a folder of this package with a row, `FEATURE`, and knows the core; the core knows no feature."""

from typing import Final

#: The built-in features, each after the features that it needs.
BUILT_IN: Final = (
    "lots",
    "tables",
    "operations",
    "compare",
    "same_data",
    "what_if",
    "clean",
    "erase",
    "notices",
    "migrate",
    "relocate",
    "outages",
    "health",
    "environments",
)
