"""`review_project`: the source of a Dagster project becomes a report of what to change in it, asset by asset."""

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from databuild_dagster import __all__ as public_names  # type: ignore[attr-defined]
from databuild_dagster.bindings.declare.parameters import ParameterKind
from databuild_dagster.features.migrate.annotations import annotated
from databuild_dagster.features.migrate.arguments import argument_findings, context_findings, helper_findings
from databuild_dagster.features.migrate.findings import Action, AssetReport, Finding, ProjectReport, Verdict
from databuild_dagster.features.migrate.location import LocationUses, io_managers_of, location_findings
from databuild_dagster.features.migrate.modules import (
    ASSET,
    CHECKS,
    MULTI_ASSET,
    STAYS,
    DecoratedFunction,
    Function,
    Module,
    Project,
    calls_in,
    decorated_in,
)
from databuild_dagster.features.migrate.project_tests import findings_of_tests
from databuild_dagster.features.migrate.results import output_names, output_values, result_of
from databuild_dagster.features.migrate.signatures import NOT_SHOWN, plain_reader_findings, signature_of
from databuild_dagster.features.migrate.source_files import read_source
from databuild_dagster.features.migrate.spark_code import module_findings, required_keys, spark_findings
from databuild_dagster.features.migrate.values import Value, Values, arguments_of, returned_by

#: Decorators and calls that stay, by full name, with the plural by which the report counts them.
_UNCHANGED: Final[Mapping[str, str]] = {
    "dagster.asset_check": "asset checks",
    "dagster.multi_asset_check": "asset checks",
    "dagster.asset_sensor": "sensors",
    "dagster.multi_asset_sensor": "sensors",
    "dagster.run_failure_sensor": "sensors",
    "dagster.run_status_sensor": "sensors",
    "dagster.sensor": "sensors",
    "dagster.ScheduleDefinition": "schedules",
    "dagster.build_schedule_from_partitioned_job": "schedules",
    "dagster.schedule": "schedules",
    "dagster.define_asset_job": "jobs",
    "dagster.job": "jobs",
    "dagster.op": "ops",
    "dagster.graph": "graphs",
    "dagster.AssetSpec": "asset specs",
    "dagster.SourceAsset": "source assets",
}
#: Ways to make an asset without a decorator.
_BY_CALL: Final = ("dagster.from_graph", "dagster.from_op")
#: Names of this package that a finding may write, to import them.
_OURS: Final = frozenset(public_names)
#: Libraries that a finding may write, by the short name.
_LIBRARIES: Final[Mapping[str, str]] = {
    "pd.": "import pandas as pd",
    "pl.": "import polars as pl",
    "pa.": "import pyarrow as pa",
    "pyspark.sql.": "import pyspark.sql",
}


def review_project(path: Path) -> ProjectReport:
    """Read every Python file of a file or folder, and judge it. Nothing is imported or written. Raises `NoSource`."""
    files, unreadable = read_source(path)
    own = [file for file in files if len(files) == 1 or not is_of_tests(file.path)]
    project = Project(own)
    decorated = list(decorated_in(project))
    candidates = [found for found in decorated if found.is_ours or found.decorator in (ASSET, MULTI_ASSET)]
    returned = _returned(project, candidates)
    judged = [(found, _judged(project, found, returned)) for found in candidates]
    ours = {
        name: returned.get(name, Value.UNKNOWN)
        for found, report in judged
        if report.verdict.is_ours
        for name in (output_names(found) if found.is_multi else [found.name])
    }
    reports = [
        _with_readers(project, found, report, ours) if report.verdict is Verdict.STAYS else report
        for found, report in judged
    ]
    reports += _made_otherwise(project, decorated)
    others = [
        *_of_checks(project, decorated, ours),
        *helper_findings(project, _with_contexts(project, judged)),
        *(finding for module in project.modules for finding in module_findings(project, module)),
        *location_findings(project, _uses(decorated, judged)),
    ]
    others = [finding for finding in others if _is_open(finding, judged)]
    # Names of the project mean the same in its tests, whose own assets are none of the project.
    whole = Project(files)
    moved = {id(found.function): found for found, report in judged if report.verdict.is_ours}
    own_paths = {file.path for file in own}
    for module in whole.modules:
        if module.source.path not in own_paths:
            others += findings_of_tests(whole, module, moved)
    others += _imports(whole, [*others, *(finding for report in reports for finding in report.findings)])
    order = {file.path: place for place, file in enumerate(files)}
    return ProjectReport(
        n_files=len(own),
        n_tests=len(files) - len(own),
        assets=tuple(sorted(reports, key=lambda report: (order[report.path], report.line))),
        others=tuple(sorted(others, key=lambda finding: (order[finding.path], finding.line))),
        unchanged=_unchanged(project, decorated),
        unreadable=tuple(unreadable),
    )


def is_of_tests(path: str) -> bool:
    """Whether a path is a file of tests: its assets are not the project's."""
    *folders, name = path.split("/")
    return name.startswith(("test_", "conftest")) or any(
        folder in ("tests", "test") or folder.endswith("_tests") for folder in folders
    )


def _returned(project: Project, candidates: Iterable[DecoratedFunction]) -> Mapping[str, Value]:
    """What the assets of a name return; several of the same name must agree."""
    found = dict[str, Value]()
    for asset in candidates:
        if asset.is_multi:
            returned = output_values(project, asset)
        else:
            returned = {asset.name: _returned_by(project, asset)}
        for name, kind in returned.items():
            found[name] = kind if found.get(name, kind) is kind else Value.UNKNOWN
    return found


def _returned_by(project: Project, asset: DecoratedFunction) -> Value:
    try:
        return returned_by(project, asset.module, asset.function)
    except RecursionError:
        return Value.UNKNOWN


def _judged(project: Project, asset: DecoratedFunction, returned: Mapping[str, Value]) -> AssetReport:
    """The report on an asset; if its expressions are nested deeper than calls of Python may be, it is left to a person."""
    try:
        return _readable(project, asset, returned)
    except RecursionError:
        return _report(asset, Verdict.DECIDE, ["its expressions are nested too deeply to be read here"])


def _readable(project: Project, asset: DecoratedFunction, returned: Mapping[str, Value]) -> AssetReport:
    """The report on an asset, as if it became ours; if it cannot, why."""
    values = Values(project, asset.module, asset.function)
    signature = signature_of(project, asset, returned)
    result = result_of(project, asset, values)
    parameters = frozenset(argument.arg for argument in arguments_of(asset.function))
    findings = [*argument_findings(project, asset), *signature.findings, *result.findings]
    if signature.context is not None:
        findings += context_findings(project, asset.module, asset.function, signature.context)
    findings += spark_findings(project, asset, parameters, values)
    stays, decide = [*signature.stays, *result.stays], result.decide
    if asset.is_ours:
        refused = [
            finding for finding in signature.findings if finding.action is Action.DECIDE and finding.why != NOT_SHOWN
        ]
        findings = [finding for finding in findings if finding.action.touches_lines or finding in refused]
        verdict = Verdict.DECIDE if stays or refused else Verdict.IS
        why = [f"the package refuses it: {reason}" for reason in stays]
    elif stays:
        verdict, why, findings = Verdict.STAYS, stays, []
    elif decide or any(finding.action is Action.DECIDE for finding in findings):
        verdict, why = Verdict.DECIDE, decide
    else:
        verdict, why = Verdict.BECOMES_MULTI if asset.is_multi else Verdict.BECOMES, []
    if asset.factory is not None:
        why = [
            *why,
            f"the function {asset.factory} makes any number of such assets, whose names the source does not show",
        ]
    return _report(asset, verdict, why, findings)


def _report(
    asset: DecoratedFunction, verdict: Verdict, why: Sequence[str], findings: Iterable[Finding] = ()
) -> AssetReport:
    in_order = sorted(findings, key=lambda finding: (finding.line, finding.last_line))
    line = asset.node.lineno
    return AssetReport(asset.name, asset.module.source.path, line, verdict, tuple(map(_sentence, why)), tuple(in_order))


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _with_readers(
    project: Project, asset: DecoratedFunction, report: AssetReport, ours: Mapping[str, Value]
) -> AssetReport:
    """A plain asset that reads assets that become ours may need annotations."""
    findings = tuple(plain_reader_findings(project, asset, ours))
    return AssetReport(report.name, report.path, report.line, report.verdict, report.why, findings)


def _with_contexts(
    project: Project, judged: Iterable[tuple[DecoratedFunction, AssetReport]]
) -> Iterator[tuple[Module, Function, str]]:
    """The functions that get a `BuildContext`, each with the name of its first parameter, the context."""
    for found, report in judged:
        for argument in arguments_of(found.function)[:1] if report.verdict.is_ours else ():
            kind = annotated(project, found.module, argument.annotation).kind
            if kind is ParameterKind.CONTEXT or (argument.arg == "context" and argument.annotation is None):
                yield found.module, found.function, argument.arg


def _of_checks(
    project: Project, decorated: Iterable[DecoratedFunction], ours: Mapping[str, Value]
) -> Iterator[Finding]:
    for found in decorated:
        if found.decorator in CHECKS:
            yield from plain_reader_findings(project, found, ours)


def _made_otherwise(project: Project, decorated: Sequence[DecoratedFunction]) -> Iterator[AssetReport]:
    """Assets of other decorators of Dagster, of decorators of the project, and of calls."""
    for found in decorated:
        if found.decorator in STAYS:
            yield _report(found, Verdict.STAYS, [STAYS[found.decorator]])
        elif (maker := project.function(found.decorator)) is not None and _makes_assets(project, *maker):
            module, function = maker
            where = f"{module.source.path}:{function.lineno}"
            why = f"the project's own decorator {function.name} ({where}) makes it: change it there, then look at each function"
            yield _report(found, Verdict.DECIDE, [why])
    as_decorators = {id(found.node) for found in decorated}
    for module in project.modules:
        for call, full in calls_in(project, module):
            name, why = "", ""
            if full in _BY_CALL:
                name, why = module.text(call.args[0]) if call.args else "asset", STAYS["dagster.graph_asset"]
                yield AssetReport(name, module.source.path, call.lineno, Verdict.STAYS, (_sentence(why),))
            elif full in (ASSET, MULTI_ASSET) and id(call) not in as_decorators and not _is_decorator_of(module, call):
                why = "a call makes it: write the decorator above the function, and read the report again"
                name = module.text(call)
                yield AssetReport(name, module.source.path, call.lineno, Verdict.DECIDE, (_sentence(why),))


def _is_decorator_of(module: Module, call: ast.Call) -> bool:
    """`asset(…)` that decorates a function somewhere, for example beside a second decorator."""
    return any(
        call is decorator
        for node in ast.walk(module.source.tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        for decorator in node.decorator_list
    )


def _makes_assets(project: Project, module: Module, function: ast.AST) -> bool:
    """Whether a function calls Dagster's `asset`, or decorates a function with it."""
    return any(
        project.full_name(module, node) in (ASSET, MULTI_ASSET)
        for node in ast.walk(function)
        if isinstance(node, (ast.Name, ast.Attribute))
    )


def _uses(
    decorated: Iterable[DecoratedFunction], judged: Sequence[tuple[DecoratedFunction, AssetReport]]
) -> LocationUses:
    ours = {id(found.function) for found, report in judged if report.verdict.is_ours}
    others = [found for found in decorated if id(found.function) not in ours and found.decorator.startswith("dagster")]
    plain_resources = {argument.arg for found in others for argument in arguments_of(found.function)}
    plain_resources |= {key for found in others for key in required_keys(found)}
    plain = [found for found, report in judged if report.verdict in (Verdict.STAYS, Verdict.DECIDE)]
    return LocationUses(
        ours={f"{found.module.name}.{found.function.name}" for found, report in judged if report.verdict.is_ours},
        plain={f"{found.module.name}.{found.function.name}" for found in plain},
        io_managers=io_managers_of(plain),
        plain_resources=plain_resources,
    )


def _is_open(finding: Finding, judged: Sequence[tuple[DecoratedFunction, AssetReport]]) -> bool:
    """A project whose assets are all ours has answered its questions; what it must change is left."""
    is_moved = bool(judged) and all(report.verdict is Verdict.IS for _, report in judged)
    return finding.action.touches_lines or not is_moved


def _imports(project: Project, findings: Sequence[Finding]) -> Iterator[Finding]:
    """The names that the changes of a module need and that it does not import."""
    for module in project.modules:
        texts = [
            finding.write
            for finding in findings
            if finding.path == module.source.path and finding.action is Action.CHANGE
        ]
        words = {word for text in texts for word in _words(text)}
        have = {alias for alias, full in module.imports.items() if full.startswith("databuild_dagster.")}
        lines = [
            line
            for short, line in _LIBRARIES.items()
            if any(short in text for text in texts) and short.partition(".")[0] not in module.imports
        ]
        if missing := sorted((words & _OURS) - have, key=lambda name: (not name.isupper(), name[0].islower(), name)):
            lines.append(f"from databuild_dagster import {', '.join(missing)}")
        place = _last_import(module.source.tree)
        for line in lines:
            yield Finding(Action.ADD, module.source.path, place, place, "", line)


def _words(text: str) -> list[str]:
    return "".join(character if character.isalnum() or character == "_" else " " for character in text).split()


def _last_import(tree: ast.Module) -> int:
    """The line below which an import fits."""
    imports = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    return max((node.end_lineno or node.lineno for node in imports), default=0)


def _unchanged(project: Project, decorated: Iterable[DecoratedFunction]) -> Mapping[str, int]:
    counts = Counter(_UNCHANGED[found.decorator] for found in decorated if found.decorator in _UNCHANGED)
    as_decorators = {id(found.node) for found in decorated}
    for module in project.modules:
        for call, full in calls_in(project, module):
            if full in _UNCHANGED and id(call) not in as_decorators:
                counts[_UNCHANGED[full]] += 1
    return dict(sorted(counts.items()))
