"""kill -9 between any two statements, really: in a forked child, which does nothing else."""

from __future__ import annotations

import os
import signal

import psycopg

#: More statements than any of the commands that are killed has; one that is not done by then is a mistake.
MOST_STATEMENTS = 300


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


def killed_at(world, statement, act):
    """Whether a forked child was killed as it was about to run its n-th statement."""
    pid = os.fork()
    if pid == 0:
        try:
            count = 0

            def die_in_time(_sql):
                nonlocal count
                count += 1
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
