"""The features: each is a folder of this package with one row, `FEATURE`, and knows the core; the core knows none of them."""

from typing import Final

#: The built-in features, each after those that it needs.
BUILT_IN: Final = (
    "lots",
    "tables",
    "operations",
    "compare",
    "what_if",
    "clean",
    "erase",
    "notices",
    "migrate",
    "relocate",
    "outages",
    "health",
)
