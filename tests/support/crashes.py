"""kill -9 between any two statements, really: in a forked child, which does nothing else."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable

import psycopg
import pytest

#: More statements than any of the commands that are killed has; one that is not done by then is a mistake.
MOST_STATEMENTS = 300

#: Which statements of a process count: a new counter for each process.
Counter = Callable[[], Callable[[str], bool]]


def every_statement():
    """Each of them."""
    return lambda _sql: True


def edges_of_transactions():
    """Those that begin or end a transaction, and the one right after: what a kill leaves is the same between two of them."""
    is_after = False

    def counts(sql):
        nonlocal is_after
        was_after, is_after = is_after, sql.lstrip().upper().startswith(("BEGIN", "COMMIT", "ROLLBACK"))
        return was_after or is_after

    return counts


#: For tests that kill a process at one statement after the other. CI kills at the edges.
AT_STATEMENTS = (
    pytest.param(edges_of_transactions, id="edges"),
    pytest.param(every_statement, id="every", marks=pytest.mark.extended),
)


def fewest(counter):
    """A test that killed its process at no more places than these has seen nothing."""
    return 8 if counter is every_statement else 3


def on_each_statement(store, call):
    """Before it is run; in a process that does nothing else afterwards."""
    if store.path is not None:
        store._connection().set_trace_callback(call)
        return
    for name in ("execute", "executemany"):
        run = getattr(psycopg.Cursor, name)

        def counted(cursor, sql, *rest, run=run, **more):
            call(sql)
            return run(cursor, sql, *rest, **more)

        setattr(psycopg.Cursor, name, counted)


def killed_at(world, statement, act, counter=every_statement):
    """Whether a forked child was killed as it was about to run its n-th statement of those that count."""
    pid = os.fork()
    if pid == 0:
        # A collection would write to every object of the parent, and the kernel would copy each of their pages.
        gc.disable()
        try:
            count, counts = 0, counter()

            def die_in_time(sql):
                nonlocal count
                count += counts(sql if isinstance(sql, str) else str(sql))
                if count == statement:
                    os.kill(os.getpid(), signal.SIGKILL)

            on_each_statement(world.store, die_in_time)
            act(world)
            os._exit(0)
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in (0, -signal.SIGKILL)
    return code != 0
