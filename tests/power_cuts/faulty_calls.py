"""A process in which chosen system calls below a folder fail, as on a disk that is full or breaks.

The kernel passes each system call that changes files to the caller (seccomp's user notification), who lets it through or
answers with an error. So the calls of all threads have one order, and each is known with its path; `strace` counts them by
thread and by kind.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import platform
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

#: Of x86_64, by the number of the call: its name, and the argument that is the descriptor of the changed file.
_OF_DESCRIPTOR = {
    1: ("write", 0),
    18: ("pwrite64", 0),
    20: ("writev", 0),
    74: ("fsync", 0),
    75: ("fdatasync", 0),
    77: ("ftruncate", 0),
    285: ("fallocate", 0),
}
#: The same, with the argument that is the new path.
_OF_PATH = {82: ("rename", 1), 83: ("mkdir", 0), 86: ("link", 1), 264: ("renameat", 3), 265: ("linkat", 4)}
_CALLS = _OF_DESCRIPTOR | _OF_PATH

_SECCOMP, _SET_FILTER, _NEW_LISTENER = 317, 1, 8
_NO_NEW_PRIVILEGES = 38
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _NOTIFY = 0x7FFF0000, 0x7FC00000
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_CONTINUE = 1
#: Its id, the thread, flags, the number of the call, the architecture, the instruction, and six arguments.
_NOTIFICATION = struct.Struct("=QIIiIQ6Q")
#: The id, a result, the error, and flags.
_ANSWER = struct.Struct("=QqiI")
_MOST_OF_A_PATH = 4096
#: Milliseconds between two looks at the clock.
_LOOK = 1000


class Call(NamedTuple):
    """A system call that changes a file below the folder."""

    #: Its place among them, from 1 on.
    n: int
    name: str
    #: Relative to the folder.
    path: str


class Ended(NamedTuple):
    """How a process ended."""

    #: Its exit code; a signal is negative.
    code: int
    n_calls: int
    #: The first call that failed.
    failed: Call | None


def can_fail_calls() -> bool:
    """Whether the machine, its kernel and a container let a process do this."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return False
    try:
        return run_failing(lambda: 0, "/nowhere").code == 0
    except OSError:
        return False


def run_failing(
    do: Callable[[], int],
    folder: str,
    errors: Callable[[Call], int] = lambda call: 0,
    *,
    left_out: tuple[str, ...] = (),
    seconds: float = 300.0,
) -> Ended:
    """Call `do` in a fork, which ends by the code that it returns; `errors` names the error of each call, 0 for none.

    Paths that begin with one of `left_out` are not counted. The fork is killed after `seconds`. Raises `OSError` where the kernel refuses.
    """
    ours, theirs = socket.socketpair()
    if (pid := os.fork()) == 0:
        _be_the_fork(do, theirs)
    theirs.close()
    with ours:
        _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
    n_calls, failed = 0, None
    for descriptor in descriptors:
        killed_at = time.monotonic() + seconds
        for call, answer in _calls(descriptor, folder, left_out):
            if time.monotonic() > killed_at:
                os.kill(pid, signal.SIGKILL)
            if call is not None:
                n_calls = call.n
                error = errors(call)
                failed = failed or (call if error else None)
                answer(error)
        os.close(descriptor)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if not descriptors:
        raise OSError("the kernel gives no notifications")
    return Ended(code, n_calls, failed)


def _be_the_fork(do: Callable[[], int], parent: socket.socket) -> None:
    code = 1
    try:
        listener = _listener()
        socket.send_fds(parent, [b"-"], [listener])
        os.close(listener)
        parent.close()
        code = do()
        sys.stdout.flush()
    finally:
        os._exit(code)


class _Instruction(ctypes.Structure):
    _fields_ = (("code", ctypes.c_ushort), ("yes", ctypes.c_ubyte), ("no", ctypes.c_ubyte), ("value", ctypes.c_uint32))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.POINTER(_Instruction)))


def _listener() -> int:
    """A descriptor with the notifications of this process from now on. Raises `OSError`."""
    program = [_Instruction(_LOAD, 0, 0, 0)]
    for place, number in enumerate(_CALLS):
        program.append(_Instruction(_JUMP_IF_EQUAL, len(_CALLS) - place, 0, number))
    program += [_Instruction(_RETURN, 0, 0, _ALLOW), _Instruction(_RETURN, 0, 0, _NOTIFY)]
    filtered = _Program(len(program), (_Instruction * len(program))(*program))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    listener = int(libc.syscall(_SECCOMP, _SET_FILTER, _NEW_LISTENER, ctypes.byref(filtered)))
    if listener < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return listener


def _calls(
    listener: int, folder: str, left_out: tuple[str, ...]
) -> Iterator[tuple[Call | None, Callable[[int], None]]]:
    """Each counted call, with the function that answers it; None at times when there is none."""
    poll, n = select.poll(), 0
    poll.register(listener, select.POLLIN)
    while True:
        events = poll.poll(_LOOK)
        if events and not events[0][1] & select.POLLIN:
            # Every process of the fork has ended.
            return
        if not events:
            yield None, lambda error: None
            continue
        notification = bytearray(_NOTIFICATION.size)
        try:
            fcntl.ioctl(listener, _RECEIVE, notification)
        except OSError:
            # The thread was killed.
            continue
        request, thread, _, number, _, _, *arguments = _NOTIFICATION.unpack(notification)

        def answer(error: int, request: int = request) -> None:
            with suppress(OSError):
                fcntl.ioctl(listener, _SEND, bytearray(_ANSWER.pack(request, 0, -error, 0 if error else _CONTINUE)))

        path = f"{_path(thread, number, arguments)}/"
        below = path.removeprefix(f"{folder}/")
        if below == path or below.startswith(left_out):
            answer(0)
            continue
        n += 1
        yield Call(n, _CALLS[number][0], below.rstrip("/")), answer


def _path(thread: int, number: int, arguments: Sequence[int]) -> str | None:
    argument = arguments[_CALLS[number][1]]
    try:
        if number in _OF_DESCRIPTOR:
            return os.readlink(f"/proc/{thread}/fd/{argument & 0xFFFFFFFF}")
        memory = os.open(f"/proc/{thread}/mem", os.O_RDONLY)
        try:
            name = os.pread(memory, _MOST_OF_A_PATH, argument).split(b"\0")[0].decode(errors="surrogateescape")
        finally:
            os.close(memory)
        return os.path.join(os.readlink(f"/proc/{thread}/cwd"), name)
    except OSError:
        # The process is gone.
        return None
