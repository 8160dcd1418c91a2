"""The asset check that fails while an open want for an asset is late (rule 5.5); and the duties that tell about missed SLAs.

An author adds the check to the assets that have deadlines. A run of the check computes the result at once. Nothing runs when a
deadline passes, so a tick also reports the check when its result has changed.
"""

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import pairwise
from typing import Any, Final

import dagster as dg

from databuild_dagster.bindings.adapter.dagster_private import AssetGraph
from databuild_dagster.bindings.adapter.keys import asset_text
from databuild_dagster.bindings.display.checks import keys_of, listed, report_changed
from databuild_dagster.bindings.orchestration.duties import Duty, Work
from databuild_dagster.bindings.registry.instance import engine_for
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.follower import Cursor, LogFollower, apart
from databuild_dagster.engine.why.explain import Cause, causes_of_each
from databuild_dagster.engine.why.reasons import look_up
from databuild_dagster.engine.wording import when
from databuild_dagster.features.notices.alerts import ALERTS, send_alerts
from databuild_dagster.model.refs import Ref
from databuild_dagster.store.queries.wants import LateRef

#: The check's name, the same for every asset.
SLA_CHECK: Final = "no_missed_slas"
#: Late refs named in its metadata, each with what it waits for.
MAX_NAMED: Final = 20
#: Late refs of all assets that are followed to the first cause, the first of each asset first: a tick waits for it.
MAX_EXPLAINED: Final = 10

_COUNT: Final = "databuild/late"
_LINES: Final = "databuild/refs"
_SEVERITY: Final = "databuild/severity"


def build_sla_checks(
    *,
    assets: Sequence[dg.AssetKey | str | Sequence[str] | dg.AssetsDefinition],
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.WARN,
) -> Sequence[dg.AssetChecksDefinition]:
    """Asset checks that fail while an open want for a partition of an asset has missed its SLA.

    Give them to `build_definitions(…, asset_checks=…)`. `assets` are ours or plain, by themselves or by key. The
    orchestrator reports the checks when they change; they may be executed, too.
    """
    keys = keys_of(assets)
    if not keys:
        raise ValueError("build_sla_checks got no assets; name those that have deadlines.")
    specs = [
        dg.AssetCheckSpec(
            SLA_CHECK,
            asset=key,
            description="Whether an open want for a partition of the asset has missed its SLA.",
            metadata={_SEVERITY: severity.value},
        )
        for key in keys
    ]
    texts = "\n".join(sorted(map(asset_text, keys)))

    # Dagster requires a name per step, and a location may have several.
    @dg.multi_asset_check(name=f"{SLA_CHECK}_{sha256(texts.encode()).hexdigest()[:8]}", specs=specs, can_subset=True)
    def no_missed_slas(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        engine = engine_for(context.instance)
        checks = sorted(context.selected_asset_check_keys)
        for check, verdict in _verdicts(engine, dict.fromkeys(checks, severity), from_log_alone=False).items():
            yield dg.AssetCheckResult(asset_key=check.asset_key, check_name=check.name, **verdict)

    return [no_missed_slas]


@apart("missed SLAs could not be shown in Dagster")
def report_sla_checks(instance: dg.DagsterInstance, location: str, graph: AssetGraph) -> None:
    """Report the checks of a location to Dagster, without a run. Errors are logged: the checks are only shown."""
    specs = {key: graph.get_check_spec(key) for key in graph.asset_check_keys if key.name == SLA_CHECK}
    default = dg.AssetCheckSeverity.WARN.value
    checks = {key: dg.AssetCheckSeverity((spec.metadata or {}).get(_SEVERITY, default)) for key, spec in specs.items()}
    if not checks:
        return
    engine = engine_for(instance)
    follower = LogFollower(engine, f"sla_checks/{location}", Cursor)
    # A missed deadline is an event (rule 5.5), so without new events no result has changed.
    if follower.is_at_end:
        return
    # Which processes are alive is no event: with it in the reason, every tick would report a change.
    report_changed(instance, _verdicts(engine, checks, from_log_alone=True), _LINES)
    follower.rest(follower.head)


def _verdicts(
    engine: Engine, checks: Mapping[dg.AssetCheckKey, dg.AssetCheckSeverity], *, from_log_alone: bool
) -> dict[dg.AssetCheckKey, dict[str, Any]]:
    found = engine.queries.wants.late_refs([asset_text(check.asset_key) for check in checks], engine.now(), MAX_NAMED)
    named = [[ref.ref for ref in late] for _, late in found.values()]
    refs = [of_asset[place] for place in range(MAX_NAMED) for of_asset in named if place < len(of_asset)]
    now = engine.now()
    known = look_up(engine.queries, refs, now)
    explained = causes_of_each(engine, refs[:MAX_EXPLAINED], from_log_alone=from_log_alone)
    followed = {ref: _to_first_cause(causes) for ref, causes in explained.items()}
    whys = {ref: known.why(ref, now) for ref in refs} | followed
    return {check: _verdict(found[asset_text(check.asset_key)], whys, severity) for check, severity in checks.items()}


def _verdict(
    late: tuple[int, Sequence[LateRef]], whys: Mapping[Ref, str], severity: dg.AssetCheckSeverity
) -> dict[str, Any]:
    """Each late ref with its deadline and the reason."""
    count, named = late
    lines = [f"{ref.ref}: late since {when(ref.deadline)}; {whys[ref.ref]}" for ref in named]
    return {
        "passed": count == 0,
        "severity": severity,
        "description": f"{count} late. First: {lines[0]}." if lines else None,
        "metadata": {_COUNT: count, _LINES: dg.MetadataValue.text("\n".join(listed(count, lines)))},
    }


def _to_first_cause(causes: Sequence[Cause]) -> str:
    """Both ends of the first path from a ref to a first cause."""
    of_ref = [cause.why for cause in causes if cause.depth == 0]
    first_cause = None
    for before, cause in pairwise(causes):
        if cause.depth < before.depth:
            break
        if cause.depth > before.depth:
            first_cause = f"{cause.ref}: {cause.why}"
    return "; ".join([*of_ref, *([first_cause] if first_cause else [])])


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
    Duty(
        "send alerts",
        _send,
        why="the tick records which SLAs were missed",
        behind="tend held Dagster runs",
        is_public=True,
    ),
    Duty("report SLA checks", _report, why="the tick records which SLAs were missed", behind="send alerts"),
)
