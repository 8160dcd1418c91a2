"""Every kind of process is killed and frozen while wants come in; at the end nothing is lost and nothing was built twice.

    python -m bench.soak --minutes N --seed S [--every SECONDS] [--database postgres] [--coordinator] [--keep]

A home of its own, `databuild dev` as people run it, and a small project on Spark: a chain with dep misses at run time, a
batched asset, files that arrive, and an operation. Wants come by the command line all the time, and a user presses
Materialize. Every few seconds one of these is killed (SIGKILL), or frozen for longer than a lease (SIGSTOP, SIGCONT): the
run worker (the step that builds, the holder of a claim, the executor of an operation), the daemon, the web server (with
the run coordinator), the code server (Dagster's proxy of it, or the process that has the code: ticks, the watcher of
arrivals), the Spark server, a `databuild` command, PostgreSQL. Sometimes all are killed at once. A supervisor as any
deployment has one starts again what has died.

Then the troubles stop, and the wants have some minutes to end. The questions at the end: every want that was acknowledged
has ended Successful, or has Failed of three attempts that were lost (they are retried, and must be live then); no ref was
built twice at the same time, but for a call that was frozen beyond its lease and publishes nothing; none was built again
after it was done unless a person tainted it; all data is right, and shown by Dagster; every file that arrived is in its
lot; operations ended once; `databuild log check --deep --contents` finds nothing. After Ctrl-C and `databuild spark --stop`
nothing is left: no process, no folder, no session of PostgreSQL, no Dagster run that goes on.

The story is printed as it goes, the table after it. Exit code 1 when anything is wrong. Random choices follow from the
seed; the order in which the processes act does not.
"""

import argparse
import random
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from bench.soak.database import Database
from bench.soak.judgment import Judgment
from bench.soak.service import COORDINATOR, SETTINGS, Soak


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="bench.soak", description="Kill and freeze everything, and see that nothing is lost."
    )
    parser.add_argument("--minutes", type=float, default=5.0, help="of troubles; the end takes a few more")
    parser.add_argument("--seed", type=int, default=None, help="of the random choices; by default a new one")
    parser.add_argument("--every", type=float, default=10.0, help="seconds between troubles, on average")
    parser.add_argument("--database", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--coordinator", action="store_true", help="with DatabuildRunCoordinator")
    parser.add_argument("--keep", action="store_true", help="leave the folder where it is")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1_000_000) if options.seed is None else options.seed
    folder = Path(tempfile.mkdtemp(prefix="databuild-soak-"))
    # The end of this process ends all that it has started.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    database = Database() if options.database == "postgres" else None
    soak = Soak(folder, seed, options.every, COORDINATOR if options.coordinator else SETTINGS, database)
    print(f"Seed {seed}, {options.minutes:g} minutes on {options.database}, in {folder}", flush=True)
    try:
        soak.run(options.minutes * 60)
        found = Judgment(soak).judged()
    finally:
        soak.clear_up()
    print("\n| fact | |\n|---|---|")
    for what, value in found.rows:
        print(f"| {what} | {value} |")
    for violation in found.violations:
        print(f"WRONG: {violation}")
    if found.violations or options.keep:
        print(f"Everything is in {folder}; seed {seed}.")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(1 if found.violations else 0)


if __name__ == "__main__":
    main()
