"""`databuild plan REF…`: what a build would do, as a tree of jobs, before anything is done (rule 8.6)."""

from __future__ import annotations

from collections import Counter, defaultdict

import click
from rich.console import Console
from rich.markup import escape
from rich.tree import Tree

from databuild_dagster.bindings.local.result import Screen
from databuild_dagster.calls.answers import plan_screen
from databuild_dagster.calls.plans import plan_of, plan_shape
from databuild_dagster.cli.definitions import with_definitions
from databuild_dagster.cli.options import Selection, Where, common, definitions, selection
from databuild_dagster.cli.output import count, emit, shown
from databuild_dagster.cli.state import HomeInstance, the_engine, the_warehouse
from databuild_dagster.data.environment import is_in_environment
from databuild_dagster.data.planned_reads import PlannedRead, planned_reads
from databuild_dagster.engine.why.preview import Action, AnnotatedPlan
from databuild_dagster.engine.wording import json_of
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.warehouse.layout import Warehouse

STYLES = {Action.BUILD: "cyan", Action.JOIN: "blue", Action.REUSE: "green", Action.BLOCKED: "red"}
#: Different reasons below a job's line.
MAX_REASONS = 5
#: What is written to a file is not wrapped to a terminal that is not there.
MAX_WIDTH = 10_000


@click.command("plan")
@selection
@definitions
@common
def plan(selection: Selection, where: Where, as_json: bool) -> None:
    """Show what `databuild build REFS` would do, and why.

    build: a launch would build it. join: another build is building it. reuse: it is live, or not needed. blocked: it is not
    built until the cause is repaired.
    """
    engine = the_engine()

    def annotated_plan() -> AnnotatedPlan:
        return plan_of(engine, selection.refs(engine.queries), HomeInstance(), is_provided=True)

    # What is borrowed depends on the code, which may have changed since it was registered.
    annotated = with_definitions(annotated_plan, where, lambda: engine, is_needed=is_in_environment())
    reads = list(planned_reads(engine.queries, Warehouse(the_warehouse()), annotated))
    if as_json:
        emit({**json_of(plan_shape(annotated)), "reads": [_as_json(read_set) for read_set in reads]})
    else:
        _print(annotated, plan_screen(annotated, reads))


def _as_json(read_set: PlannedRead) -> dict[str, object]:
    own, read = read_set._asdict(), read_set.read
    del own["read"]
    return own | {"files": read.files, "of": read.of}


def _print(annotated: AnnotatedPlan, screen: Screen) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=MAX_WIDTH)
    for tree in _trees(annotated):
        console.print(tree, highlight=False)
    for line in (*screen.notes, screen.head):
        console.print(escape(line), highlight=False)


def _trees(annotated: AnnotatedPlan) -> list[Tree]:
    """A job's refs on a line, below it the jobs that it comes after; each drawn once."""
    graph = annotated.graph
    refs_of: dict[str, list[Ref]] = defaultdict(list)
    job_of: dict[Ref, str] = {}
    for job in graph.jobs:
        for ref in job.produces:
            refs_of[job.job].append(ref)
            job_of[ref] = job.job
    after = {
        job: sorted({job_of[input_ref] for ref in refs for input_ref in graph.inputs[ref]} - {job})
        for job, refs in refs_of.items()
    }
    roots = list(dict.fromkeys(job_of[ref] for ref in graph.wanted))
    below = {lower_job for root in roots for lower_job in _all_below(root, after)}
    drawn: set[str] = set()
    trees = []
    # A job that is wanted, and needed by another that is, stands below that one.
    for root in sorted(roots, key=below.__contains__):
        if root in drawn:
            continue
        trees.append(tree := Tree(_line(root, refs_of[root], annotated)))
        drawn.add(root)
        stack = [(tree, needed) for needed in reversed(after[root])]
        while stack:
            branch, name = stack.pop()
            if name in drawn:
                branch.add(f"{escape(name)} [dim](above)[/]")
                continue
            drawn.add(name)
            branch = branch.add(_line(name, refs_of[name], annotated))
            stack += [(branch, needed) for needed in reversed(after[name])]
    return trees


def _all_below(root: str, after: dict[str, list[str]]) -> set[str]:
    found: set[str] = set()
    level = set(after[root])
    while level:
        found |= level
        level = {ref for job in level for ref in after[job]} - found
    return found


def _line(job: str, refs: list[Ref], annotated: AnnotatedPlan) -> str:
    verdicts = annotated.verdicts
    if len(refs) == 1:
        action, reason = verdicts[refs[0]]
        return f"{escape(refs[0])}: [{STYLES[action]}]{action.value}[/], {escape(reason)}"
    counts = Counter(verdicts[ref].action for ref in refs)
    parts = ", ".join(f"[{STYLES[action]}]{counts[action]} {action.value}[/]" for action in Action if counts[action])
    if passed_over := [ref for ref in refs if ref in annotated.passed_over]:
        parts += f" ({len(passed_over)} of them not live, and not needed)"
    lines = [f"{escape(job)} {_size(job, refs)}: {parts}"]
    # What is reused needs no reason where there are many; it is there.
    reasons: dict[tuple[Action, str], list[Ref]] = defaultdict(list)
    for ref in refs:
        if verdicts[ref].action is not Action.REUSE:
            reasons[verdicts[ref]].append(ref)
    if len(reasons) == 1 and len(counts) == 1:
        ((_, reason),) = reasons
        return f"{lines[0]}, {escape(reason)}"
    for (action, reason), of_refs in list(reasons.items())[:MAX_REASONS]:
        lines.append(f"  [{STYLES[action]}]{action.value}[/] {escape(shown(of_refs))}: {escape(reason)}")
    if len(reasons) > MAX_REASONS:
        rest = sum(len(of_refs) for of_refs in list(reasons.values())[MAX_REASONS:])
        lines.append(f"  and {count(rest, 'ref')} for other reasons; --json lists each")
    return "\n".join(lines)


def _size(job: str, refs: list[Ref]) -> str:
    assets = {asset_of(ref) for ref in refs}
    if assets == {job}:
        return count(len(refs), "partition")
    return f"({shown(sorted(assets))}) {count(len(refs), 'ref')}"
