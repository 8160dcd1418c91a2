"""`make cluster-test`: one deployment on thirteen hosts, faults of its network, hosts, services and clocks, and a judge.

    python -m tests.cluster [--minutes 60] [--seed 1] [--keep]

Without `--minutes` it tells a short story, in which each kind of fault strikes once. With it, faults and commands follow from
the seed, for so long. Then the faults end, and so must every want; the judge reads the event table and the bucket. Exit code 1
for a violation. What the hosts have written is kept after one.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from pyarrow.fs import S3FileSystem

from tests.support.object_store import ENVIRONMENT

from .hosts import Lab, why_not
from .judge import Evidence, evidence, judged, lost_job_runs
from .services import PLACES, Deployment
from .story import Story, endless_story, short_story


def main() -> int:
    parser = argparse.ArgumentParser(prog="make cluster-test", description=__doc__.partition("\n\n")[0])
    parser.add_argument("--minutes", type=float, default=0.0, help="of faults of a seed, in place of the short story")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="keep what the hosts have written")
    options = parser.parse_args()
    if reason := why_not():
        in_ci = os.environ.get("CI") == "true"
        print(f"make cluster-test {'cannot run' if in_ci else 'is skipped'}: {reason}.")
        return 1 if in_ci else 0
    # So that no namespace is left.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(tempfile.mkdtemp(prefix="databuild-cluster-"))
    # PostgreSQL's user goes through it.
    folder.chmod(0o755)
    violations = ["it did not come to its end"]
    try:
        violations = _told(folder, options.minutes * 60, options.seed)
    finally:
        if violations or options.keep:
            print(f"What the hosts have written is in {folder}.")
        else:
            shutil.rmtree(folder)
    return 1 if violations else 0


def _told(folder: Path, seconds: float, seed: int) -> list[str]:
    began = time.monotonic()
    with Lab(folder / "hosts", PLACES) as lab, Deployment(lab) as at:
        story = Story(at)
        if seconds:
            endless_story(story, seconds, seed)
        else:
            short_story(story)
        at.say("No more faults")
        faults_ended = time.monotonic()
        story.close()
        story.ended()
        took = time.monotonic() - faults_ended
        found = story.run("c2", "log", "check", "--deep", "--contents")
        s3 = S3FileSystem(
            access_key=ENVIRONMENT["AWS_ACCESS_KEY_ID"],
            secret_key=ENVIRONMENT["AWS_SECRET_ACCESS_KEY"],
            endpoint_override=f"http://{lab['store'].address}:8333",
            region="us-east-1",
        )
        seen = evidence(at.sql, s3, story.acknowledged, story.landed)
        violations = judged(seen)
        if found.code:
            violations.append(f"databuild log check --deep --contents: {(found.out or found.err)[-2000:]}")
        if not judged(_with_a_lie(seen)):
            violations.append("the judge believes an acknowledgement that no event has")
        _print_table(story, seen, violations, time.monotonic() - began, took)
    return violations


def _with_a_lie(seen: Evidence) -> Evidence:
    return Evidence(seen.events, {}, {}, seen.values, [("request", "never-made")])


def _print_table(story: Story, seen: Evidence, violations: list[str], seconds: float, took: float) -> None:
    states = Counter(state for state, _, _ in seen.wants.values())
    live = sum(at.state == "Live" for at in seen.canonical.values())
    rows = {
        "seconds, and until the wants ended": f"{seconds:.0f}, {took:.0f}",
        "events": len(seen.events),
        "wants": _counted(states),
        "requests acknowledged": len(story.acknowledged),
        "faults": f"{story.at.faults.total()}: {_counted(story.at.faults)}",
        "job runs lost": lost_job_runs(seen),
        "refs live, whose rows were read": live,
        "files landed": sum(map(len, story.landed.values())),
        "commands": _counted(story.codes),
        "services that ended by themselves": _counted(story.at.restarts) or 0,
        "violations": len(violations),
    }
    print()
    for name, value in rows.items():
        print(f"{name:36} {value}")
    for complaint in story.complaints:
        print(f"complaint: {complaint}")
    for violation in violations:
        print(f"VIOLATION: {violation}", flush=True)


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {n}" for name, n in counts.most_common())


if __name__ == "__main__":
    sys.exit(main())
