"""The id of a command, by which it is done once, and from it the ids of its events (rule 3.3).

An id may carry a fingerprint of what is asked: `ID#=FINGERPRINT`. The first event of the command keeps the fingerprint, so the
same id with a different request is refused. An id without a fingerprint names its command for every request.
"""

import json
import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

#: Between a command's id and the number of its second and later events; command ids themselves may not hold it.
CONTINUATION: Final = "#"
_MARK: Final = f"{CONTINUATION}="
_DIGITS: Final = 32
_POSSIBLE: Final = re.compile(rf"[^{CONTINUATION}\0]+({_MARK}[0-9a-f]{{{_DIGITS}}})?")


def with_fingerprint(command_id: str, asked: Sequence[object]) -> str:
    """The id for this request alone. `asked` has texts, and lists of them."""
    # As ASCII: half of a surrogate pair has no UTF-8.
    digest = sha256(json.dumps(asked, separators=(",", ":")).encode("ascii")).hexdigest()
    return f"{command_id}{_MARK}{digest[:_DIGITS]}"


def is_possible(command_id: str) -> bool:
    return _POSSIBLE.fullmatch(command_id) is not None


def bare(command_id: str) -> str:
    """The id of the command, from the id of any of its events or from an id with a fingerprint."""
    return command_id.partition(CONTINUATION)[0]


def of_attempt(command_id: str | None, attempt: int) -> str | None:
    """The id of a further attempt at a command, because an id has a single answer; the first attempt has the id of the command."""
    if command_id is None or attempt == 0:
        return command_id
    id, mark, fingerprint = command_id.partition(CONTINUATION)
    return f"{id}/{attempt}{mark}{fingerprint}"


def is_of_another_request(command_id: str, first_event: str) -> bool:
    """Whether an id carries a fingerprint, and the first event that was recorded under the id has a different fingerprint or none."""
    return CONTINUATION in command_id and command_id != first_event
