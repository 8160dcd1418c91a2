"""`make power-cuts`: record fifty commands, cut the power again and again, and look at each disk.

python -m tests.power_cuts --disks 10000 --seed 1 [--synchronous FULL]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from .cutting import cut_power, recorded


def main() -> int:
    parser = argparse.ArgumentParser(prog="make power-cuts", description=__doc__)
    parser.add_argument("--disks", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--synchronous", choices=["NORMAL", "FULL"], default="FULL", help="DATABUILD_SQLITE_SYNCHRONOUS"
    )
    options = parser.parse_args()
    is_durable = options.synchronous == "FULL"
    with tempfile.TemporaryDirectory(prefix="databuild-power-") as scratch:
        changes = list(recorded(Path(scratch), is_durable=is_durable))
    result = cut_power(changes, options.disks, options.seed, is_durable=is_durable)
    print(
        f"{result.n_commands} commands made {result.n_changes} changes of files; {options.disks} disks after a power cut, "
        f"synchronous {options.synchronous}: {result.n_lost} lose acknowledged commands, {len(result.faults)} faults"
    )
    for fault in result.faults[:20]:
        print(f"\n{fault}")
    return 1 if result.faults else 0


if __name__ == "__main__":
    sys.exit(main())
