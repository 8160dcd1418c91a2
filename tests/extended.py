"""What a run of the tests leaves out, unless it is asked for everything (`make test ARGS=--all`) or for a file by name.

CI has minutes on two cores, and these take most of an hour. Left out is what shows a rule a second time: by another door,
in another mode, after another kind of accident, at full size. One proof of each rule stays in. A name stands for all of
its parameters, unless it says which.
"""

from __future__ import annotations

from collections.abc import Mapping

#: By the file, without `tests/` and `.py`.
EXTENDED: Mapping[str, tuple[str, ...]] = {
    "model/decide/test_trust": (
        "test_a_downstream_taint_covers_what_was_built_from_it_and_a_rebuild_agrees[postgres]",
    ),
}


def is_extended(file: str, name: str) -> bool:
    """Whether a test, by its file below `tests/` without `.py` and its name with parameters, is one of them."""
    names = EXTENDED.get(file, ())
    return name in names or name.partition("[")[0] in names
