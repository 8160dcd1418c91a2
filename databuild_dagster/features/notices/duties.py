"""Alerts about missed SLAs, as a duty of each tick."""

from databuild_dagster.bindings.orchestration.duties import Duty, Work
from databuild_dagster.features.notices.alerts import send_alerts
from databuild_dagster.features.notices.settings import ALERTS


def _send(work: Work) -> None:
    send_alerts(
        work.instance,
        work.engine,
        work.deployment.location,
        ALERTS.of(work.deployment),
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
