"""A disk on which the n-th call below a folder fails, or kills the process, by Python's audit events of files and of SQLite."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_EVENTS = frozenset(
    ["open", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.truncate", "sqlite3.connect"]
)


class _State:
    def __init__(self) -> None:
        self.root: str | None = None
        #: Calls until the failing one.
        self.left = 0
        self.failed: str | None = None
        #: SIGKILL instead of an error.
        self.kills = False
        self.is_hooked = False


_state = _State()


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if _state.root is None or event not in _EVENTS:
        return
    path = arguments[0]
    if not isinstance(path, str | bytes) or not os.fsdecode(path).removeprefix("file:").startswith(_state.root):
        return
    _state.left -= 1
    if _state.left == 0 and _state.kills:
        os.kill(os.getpid(), signal.SIGKILL)
    if _state.left == 0:
        _state.failed = f"{event} of {os.fsdecode(path)}"
        raise OSError(5, "the disk fails here", path)


@contextmanager
def failing_call(root: str, number: int) -> Iterator[_State]:
    """The call with this number below a folder raises OSError; `failed` then names it."""
    _look_at(root, number)
    try:
        yield _state
    finally:
        _state.root = None


def die_at_call(root: str, number: int) -> None:
    """The call with this number below a folder ends this process, as SIGKILL does."""
    _look_at(root, number)
    _state.kills = True


def _look_at(root: str, number: int) -> None:
    if not _state.is_hooked:
        # A hook stays as long as the process; without a root it does nothing.
        sys.addaudithook(_hook)
        _state.is_hooked = True
    _state.root, _state.left, _state.failed = root, number, None
