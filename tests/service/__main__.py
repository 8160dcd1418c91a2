"""`make linearize`: clients work at the same time while processes are killed and frozen; then their records are judged.

python -m tests.service --minutes 10 --database postgres --seed 1
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from .service import Service


def main() -> int:
    parser = argparse.ArgumentParser(prog="make linearize", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--database", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1, help="of the commands and the troubles")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="databuild-service-"))
    service = Service(folder, database=options.database, n_clients=options.clients, seed=options.seed)
    with service:
        service.trouble(options.minutes * 60)
    found = service.judged()
    print(f"{options.database}: {service.summary()}; records in {folder}")
    for fault in found:
        print(f"\n{fault}")
    print(f"{len(found)} faults")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
