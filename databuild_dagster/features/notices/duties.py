"""The duties that tell about missed SLAs: alerts, and the checks of assets in Dagster."""

from typing import Final

from databuild_dagster.bindings.orchestration.duties import Duty, Work
from databuild_dagster.features.notices.alerts import send_alerts
from databuild_dagster.features.notices.settings import ALERTS
from databuild_dagster.features.notices.sla_check import report_sla_checks


def _send(work: Work) -> None:
    send_alerts(
        work.instance,
        work.engine,
        work.deployment.location,
        ALERTS.of(work.deployment),
        began_at=work.registered.head.seq,
        head=work.head,
    )


def _report(work: Work) -> None:
    report_sla_checks(work.instance, work.deployment.location, work.repository.asset_graph)


DUTIES: Final = (
    Duty("send alerts", _send, why="the tick records which SLAs were missed", behind="tend held Dagster runs"),
    Duty("report SLA checks", _report, why="the tick records which SLAs were missed", behind="send alerts"),
)
