"""Alerts about missed SLAs, as a duty of each tick."""

from databuild_dagster.bindings.display.alerts import send_alerts
from databuild_dagster.bindings.orchestration.duties import Duty, Work


def _send(work: Work) -> None:
    send_alerts(
        work.instance,
        work.engine,
        work.deployment.location,
        work.deployment.alerts,
        began_at=work.registered.head.seq,
        head=work.head,
    )


DUTIES = (
    Duty(
        "send alerts",
        _send,
        why="the tick records which SLAs were missed",
        behind="tend held Dagster runs",
    ),
)
