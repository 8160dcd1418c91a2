"""`make fuzz`: the corpus, and then inputs of a seed for so many seconds; failing inputs are kept in the corpus."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

from . import commands, logs, manifests, requests, rules
from .fuzzing import Fed, Finding, fuzz, keep, replay

TARGETS = {target.NAME: target for target in (rules, manifests, logs, commands, requests)}


class Counted:
    """A target that counts its inputs."""

    def __init__(self, fed: Fed) -> None:
        self.fed, self.n = fed, 0

    def make(self, random: Random) -> Any:
        return self.fed.make(random)

    def feed(self, given: Any) -> None:
        self.n += 1
        self.fed.feed(given)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0, help="for all targets together (SECONDS=…)")
    parser.add_argument(
        "--seed", type=int, default=None, help="of the inputs; by default another one each time (SEED=…)"
    )
    parser.add_argument("--only", choices=TARGETS, action="append", help="this target; may be repeated")
    arguments = parser.parse_args()
    seed = int(time.time()) if arguments.seed is None else arguments.seed
    print(f"Seed {seed}", flush=True)
    findings: list[Finding] = []
    names = arguments.only or list(TARGETS)
    for name in names:
        with tempfile.TemporaryDirectory() as folder, TARGETS[name].ready(Path(folder)) as fed:
            counted = Counted(fed)
            for finding in chain(
                replay(name, counted), fuzz(name, counted, seed, seconds=arguments.seconds / len(names))
            ):
                keep(finding)
                findings.append(finding)
                print(f"\n{finding}", flush=True)
        print(f"{name}: {counted.n:,} inputs", flush=True)
    print(f"{len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
