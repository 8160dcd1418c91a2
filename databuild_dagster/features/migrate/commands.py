"""`databuild migrate-project`: what to change in an existing Dagster project, asset by asset."""

import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from databuild_dagster.cli.options import common
from databuild_dagster.cli.output import MAX_WIDTH, count, emit
from databuild_dagster.cli.process import FAILED
from databuild_dagster.features.migrate.findings import Action, AssetReport, Finding, ProjectReport, Verdict
from databuild_dagster.features.migrate.review import review_project

#: How a number of assets gets a verdict.
_PLURALS = {
    Verdict.BECOMES: "become @databuild_asset",
    Verdict.BECOMES_MULTI: "become @databuild_multi_asset",
    Verdict.IS: "are databuild assets",
    Verdict.STAYS: "stay as they are",
    Verdict.DECIDE: "need a decision",
}
_VERBS = {
    Action.CHANGE: "write {}",
    Action.REMOVE: "remove it",
    Action.ADD: "add {}",
    Action.DECIDE: "decide: {}",
    Action.NOTE: "note: {}",
}


@click.command()
@click.argument("path", type=click.Path(path_type=Path), default=Path())
@click.option("--check", is_flag=True, help="Exit with 1 while anything is left to change or to decide.")
@common
def migrate_project(path: Path, check: bool, as_json: bool) -> int:
    """Show what to change in a Dagster project in PATH.

    PATH is a Python file or a folder, by default the current folder. The command reads the source; it imports none of it and
    changes no file. For each asset it prints whether it becomes a databuild asset, each line to change, and what is refused
    and why.

    Exit codes: 0 for a report, 1 if a file cannot be read, and with --check if anything is left, 2 if PATH has no source.
    """
    report = review_project(path)
    if as_json:
        emit(_as_dict(report))
    else:
        _print(report)
    return FAILED if report.unreadable or (check and not report.is_done) else 0


def _as_dict(report: ProjectReport) -> dict[str, Any]:
    return {
        "files": report.n_files,
        "test_files": report.n_tests,
        "assets": [_asset_as_dict(asset) for asset in report.assets],
        "others": report.others,
        "unchanged": dict(report.unchanged),
        "unreadable": [
            {"path": problem.path, "line": problem.line or None, "why": problem.why} for problem in report.unreadable
        ],
        "lines": report.n_lines,
        "lines_by_decision": report.n_lines_by_decision,
        "decisions": report.n_decisions,
        "done": report.is_done,
    }


def _asset_as_dict(asset: AssetReport) -> dict[str, Any]:
    return {
        "asset": asset.name,
        "path": asset.path,
        "line": asset.line,
        "verdict": asset.verdict.name.lower(),
        "why": list(asset.why),
        "lines": asset.n_lines,
        "findings": asset.findings,
    }


def _print(report: ProjectReport) -> None:
    said: set[str] = set()
    for asset in report.assets:
        _print_asset(asset, said)
    if report.others:
        click.secho("Outside of assets", bold=True)
        _print_findings(report.others, said)
        click.echo("")
    if report.unreadable:
        click.secho("Not read", bold=True, fg="red")
        for problem in report.unreadable:
            line = f":{problem.line}" if problem.line else ""
            _wrap(f"{problem.path}{line}: {problem.why}.", "  ", "      ")
        click.echo("")
    _print_summary(report)


def _print_asset(asset: AssetReport, said: set[str]) -> None:
    lines = f", {count(asset.n_lines, 'line')}" if asset.n_lines else ""
    click.secho(f"{asset.name} ({asset.path}:{asset.line}): {asset.verdict.value}{lines}", bold=True)
    for reason in asset.why:
        _wrap(reason, "  ", "  ")
    _print_findings(asset.findings, said, asset.path)
    click.echo("")


def _print_findings(findings: Iterable[Finding], said: set[str], path: str = "") -> None:
    """Places in the file of that path are lines alone. A reason is said once: a project may have it in each asset."""
    for finding in findings:
        last = f"-{finding.last_line}" if finding.last_line > finding.line else ""
        where = f"line {finding.line}{last}" if finding.path == path else f"{finding.path}:{finding.line}{last}"
        _wrap(f"{where}  {finding.found}" if finding.action is not Action.ADD else f"{where}, below", "  ", "      ")
        _wrap(_VERBS[finding.action].format(finding.write), "      ", "          ")
        if finding.why and finding.why not in said:
            said.add(finding.why)
            _wrap(f"because {finding.why}", "      ", "          ")


def _wrap(text: str, first: str, others: str) -> None:
    for line in textwrap.wrap(
        text, MAX_WIDTH, initial_indent=first, subsequent_indent=others, break_on_hyphens=False, break_long_words=False
    ):
        click.echo(line)


def _print_summary(report: ProjectReport) -> None:
    tests = f", {count(report.n_tests, 'file')} of tests" if report.n_tests else ""
    click.echo(
        f"{count(report.n_files, 'file')}{tests}, {count(len(report.assets), 'asset')}{_by_verdict(report.assets)}"
    )
    if report.unchanged:
        named = ", ".join(count(n, name.removesuffix("s"), name) for name, n in report.unchanged.items())
        click.echo(f"Unchanged: {named}.")
    more = f", and {count(report.n_lines_by_decision, 'line')} more by decisions" if report.n_lines_by_decision else ""
    if report.is_done:
        click.echo("Nothing is left to change.")
    else:
        click.echo(f"{count(report.n_lines, 'line')} to change{more}; {count(report.n_decisions, 'decision')} left.")


def _by_verdict(assets: Sequence[AssetReport]) -> str:
    found = [(verdict, sum(asset.verdict is verdict for asset in assets)) for verdict in Verdict]
    named = ", ".join(f"{n} {verdict.value if n == 1 else _PLURALS[verdict]}" for verdict, n in found if n)
    return f": {named}." if named else "."
