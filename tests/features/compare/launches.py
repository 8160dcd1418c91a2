"""A launch that records its code, config and libraries."""

from __future__ import annotations

from databuild_dagster.model import commands as c
from databuild_dagster.model.events import BufferedRun, MadeWith
from tests.support.catalog import HERE
from tests.support.world import World


def launch(world: World, ref: str, made_with: MadeWith) -> None:
    """Start a launch that builds a ref; what it builds is `made_with`."""
    world.want(ref)
    launch_id, job_run = world.ids(), world.ids()
    world.handle(
        c.BufferLaunch(
            launch_id=launch_id,
            job=ref.partition("@")[0],
            location=HERE,
            owner="orchestrator",
            runs=(BufferedRun(job_run, (ref,), None),),
            code_version="1",
        )
    )
    world.handle(c.StartLaunch(launch_id=launch_id, dagster_run_id="a-run", holder="somewhere", made_with=made_with))
