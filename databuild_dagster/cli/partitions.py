"""`databuild partitions` and `show`: what readers see, and what was there before. Loads user code for an unknown ref only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import click
import msgspec

from databuild_dagster.bindings.registry.plain_keys import dimensions_of_time
from databuild_dagster.bindings.registry.selections import existing_refs, refs_named
from databuild_dagster.calls.contents import NO_FILES
from databuild_dagster.cli.definitions import with_definitions
from databuild_dagster.cli.known_refs import canonical_of
from databuild_dagster.cli.listing import details
from databuild_dagster.cli.options import (
    REF,
    Selection,
    StateWord,
    Where,
    as_of,
    common,
    definitions,
    moment,
    one_by_one,
    selection,
    tabular,
)
from databuild_dagster.cli.output import count, emit, listing
from databuild_dagster.cli.state import dagster_home, the_catalog, the_instance, the_queries
from databuild_dagster.data.read_plan import Moment
from databuild_dagster.data.recorded_figures import check_recorded
from databuild_dagster.engine.why.alike import likeness_of
from databuild_dagster.engine.why.partitions import Pause, canonical_shape, paused_refs, shown_pause
from databuild_dagster.engine.wording import json_of, pause_in_words, to_resume
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.pauses import PauseInForce
from databuild_dagster.model.records import Column, columns_of
from databuild_dagster.model.refs import Ref, asset_of, make_ref, partition_key_of
from databuild_dagster.model.removals import REMOVED
from databuild_dagster.model.selections import DIMENSIONS, RANGE
from databuild_dagster.model.states import WORST_FIRST, InstanceState, JobRunState
from databuild_dagster.model.wording import state_in_words, typed
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import file_paths, read_manifest

if TYPE_CHECKING:
    from databuild_dagster.bindings.display.tracebacks import Raised

#: Lines of a list for people.
MAX_LINES = 100
_MISSING = "missing"


@click.command()
@click.argument("name", type=REF, metavar="ASSET|RANGE")
@click.option(
    "--state",
    type=StateWord([*(state.value for state in InstanceState), _MISSING]),
    help="Only partitions in this state; `missing` for those never built.",
)
@click.option("--outdated", is_flag=True, help="Only live partitions that other code built.")
@click.option("--list", "one_a_line", is_flag=True, help="Print a line for each partition.")
@as_of
@definitions
@tabular
def partitions(
    name: Ref, state: str | None, outdated: bool, one_a_line: bool, as_of: str | None, where: Where, as_json: bool
) -> None:
    """List every partition of ASSET with its state.

    RANGE is ASSET@FROM..TO; a key or * may be in its place. Partitions that are consecutive in time, and have the same state for
    the same reason, share a line. Of more than 100 lines the worst are printed. --list and --json have each partition.
    """
    queries = the_queries()
    then = moment(queries, as_of)
    asset = asset_of(name)
    dataset = with_definitions(lambda: queries.datasets.known(asset), where)
    seen = queries.canonical.of_dataset(asset) if then.seq is None else queries.canonical.of_dataset_at(asset, then.seq)
    known = {partition.ref: partition for partition in seen}
    if partition_key_of(name) is None:
        existing = existing_refs(dataset, the_instance)
        refs = list(dict.fromkeys([*existing, *known]))
    else:
        refs = existing = refs_named(dataset, name, the_instance)
    found = [known.get(ref) or Canonical(ref) for ref in refs]
    if state is not None:
        found = [partition for partition in found if _state_of(partition) == state]
    if outdated:
        found = [partition for partition in found if _is_outdated(partition, dataset)]
    paused = paused_refs(queries, [partition.ref for partition in found], then.seq, then.at)
    keys = [partition_key_of(partition.ref) for partition in found if partition.state is not None]
    gone = the_catalog().left_out(dataset, keys) if then.seq is None else frozenset()
    records = [
        Listed(
            partition.ref,
            partition.state,
            partition.uuid,
            _why(partition, paused.get(partition.ref), is_gone=partition_key_of(partition.ref) in gone),
            shown_pause(paused[partition.ref]) if partition.ref in paused else None,
        )
        for partition in found
    ]
    runs = [] if as_json or one_a_line else runs_of(dataset, existing, records)
    columns = columns_of(Listed)
    shown: list[Listed] | list[dict[str, object]] = records
    if len(runs) < len(records) and runs:
        columns[1:1] = [Column("partitions")]
        shown = [_run_as_record(run) for run in runs]
    lines = shown if as_json or one_a_line else worst_of(shown)
    listing(lines, columns, empty=_nothing_of(asset, state, outdated=outdated), as_json=as_json)
    if len(lines) < len(shown):
        counts = Counter(map(_state_of, found))
        in_words = ", ".join(
            f"{counts[name]:,} {state_in_words(name)}" for name in (*WORST_FIRST, _MISSING) if counts[name]
        )
        click.echo(
            f"These are the worst {len(lines):,} of {len(shown):,} lines: {in_words}. --list prints all; --state and a RANGE fewer."
        )


def worst_of(lines: Sequence[Any]) -> Sequence[Any]:
    """The lines, or the worst `MAX_LINES` of more: by state, then in their order."""
    if len(lines) <= MAX_LINES:
        return lines
    places = {state: place for place, state in enumerate(WORST_FIRST)}
    states = [line["state"] if isinstance(line, dict) else line.state for line in lines]
    order = sorted(range(len(lines)), key=lambda number: places.get(states[number], len(places)))
    return [lines[number] for number in order[:MAX_LINES]]


def _run_as_record(run: Run) -> dict[str, object]:
    first, n = run.partitions[0], len(run.partitions)
    uuid = first.uuid if n == 1 or first.uuid is None else count(n, "instance")
    return {"ref": run.name, "partitions": n, "state": first.state, "uuid": uuid, "why": run.why}


def _nothing_of(asset: str, state: str | None, *, outdated: bool) -> str:
    if outdated:
        return f"No partition of {asset} was built by other code."
    return f"{asset} has no partitions." if state is None else f"No partition of {asset} is {state_in_words(state)}."


def _why(partition: Canonical, pause: PauseInForce | None, *, is_gone: bool) -> str | None:
    paused = None if pause is None else pause_in_words(partition.ref, pause)
    gone = "the definition has no such key any more, so no reader takes it" if is_gone else None
    return "; ".join(filter(None, (partition.reason, paused, gone))) or None


def _state_of(canonical: Canonical) -> str:
    return canonical.state.value if canonical.state else _MISSING


def _is_outdated(canonical: Canonical, dataset: DatasetSpec) -> bool:
    """What came from outside was built by no code of ours."""
    is_ours = canonical.manifest_uri is not None and canonical.origin is None
    is_other = dataset.is_of_other_code(canonical.code_version, canonical.code)
    return canonical.state is InstanceState.LIVE and is_ours and is_other


@click.command()
@selection
@as_of
@definitions
@common
def show(selection: Selection, as_of: str | None, where: Where, as_json: bool) -> None:
    """Show what readers of REFS see: instances and files."""
    queries = the_queries()
    found = with_definitions(lambda: [canonical_of(queries, ref) for ref in selection.refs(queries)], where)
    then = moment(queries, as_of)
    for canonical in one_by_one(found, as_json=as_json):
        _show(queries, canonical, then, as_json=as_json)


def _show(queries: Queries, canonical: Canonical, then: Moment, *, as_json: bool) -> None:
    ref = canonical.ref
    pause = paused_refs(queries, [ref], then.seq, then.at).get(ref)
    if then.seq is not None:
        canonical = queries.canonical.at([ref], then.seq)[ref]
        if canonical.state is None and not as_json:
            click.echo(f"{ref} was missing as of {then.shown}.")
            return
    if as_json:
        paused = None if pause is None else shown_pause(pause)
        raised = _raised_of(queries, canonical) if then.seq is None else None
        emit({**_show_as_json(queries, canonical, then.seq), "paused": paused, "raised": json_of(raised)})
        return
    if canonical.state is None or canonical.uuid is None:
        builds = (
            f"`databuild build {typed(ref)}` does."
            if pause is None
            else f"It is {pause_in_words(ref, pause)}; {to_resume(pause)}."
        )
        click.echo(f"{ref} is missing: nothing has built it yet in the home {dagster_home()}. {builds}")
        return
    found = _show_as_json(queries, canonical, then.seq)["canonical"]
    assert isinstance(found, dict)
    # A failed attempt is no earlier data, so it is marked.
    was_live = found["previous_was_live"]
    raised = _raised_of(queries, canonical)
    n_bytes, taints = found["bytes"], [f"{taint['taint_id']} {taint['reason']}" for taint in found["taints"]]
    details(
        {
            "ref": ref,
            "state": state_in_words(found["state"])
            + (" (stale: an input was tainted or replaced)" if found["stale"] else ""),
            "why": found["why"],
            "paused": pause and pause_in_words(ref, pause).removeprefix("paused "),
            "waits for": ", ".join(found["waits_for"]) or None,
            "taints": "; ".join(taints) or None,
            "instance": found["uuid"],
            "previous": found["previous_uuid"] and found["previous_uuid"] + ("" if was_live else " (never live)"),
            "job run": found["job_run"],
            "dagster run": raised and raised.dagster_run_id,
            "spark": raised and raised.spark_ui,
            "live since": found["live_since"],
            "retry at": found["retry_at"],
            "built from": f"{len(found['inputs'])} instances" if found["inputs"] else None,
            "rows": found["rows"],
            "files": None if n_bytes is None else f"{found['n_files']}, {n_bytes:,} bytes",
            "manifest": found["manifest"],
            "note": found["note"],
            "origin": found["origin"],
        }
    )
    if raised is not None:
        _show_raised(raised)


def _raised_of(queries: Queries, canonical: Canonical) -> Raised | None:
    """What the last attempt raised; None unless it failed. Loads Dagster, whose log of the run has it."""
    if canonical.state not in (InstanceState.FAILED, InstanceState.UP_FOR_RETRY) or canonical.job_run is None:
        return None
    run = queries.job_runs.get(canonical.job_run)
    if run is None or run.state not in (JobRunState.FAILED, JobRunState.LOST) or run.dagster_run_id is None:
        return None
    from databuild_dagster.bindings.display.tracebacks import raised_by

    return raised_by(the_instance(), run)


def _show_raised(raised: Raised) -> None:
    """The frames of the author's code, with packages between them, and the whole message."""
    if raised.note is not None:
        click.echo(f"\n{raised.note}")
    for traceback in raised.tracebacks:
        click.echo("\nraised")
        for is_authors, frames in groupby(traceback.frames, lambda frame: frame.is_authors):
            calls = list(frames)
            if not is_authors:
                packages = ", ".join(dict.fromkeys(call.file.partition("/")[0] for call in calls))
                click.echo(f"  {count(len(calls), 'call')} in {packages}")
                continue
            for call in calls:
                click.echo(f"  {call.file}:{call.line} in {call.function}\n    {call.code}")
        click.echo(f"  {traceback.error}")


def _show_as_json(queries: Queries, canonical: Canonical, seq: int | None) -> dict[str, object]:
    """Rules 15."""
    if canonical.state is None:
        return {"ref": canonical.ref, "state": None, "canonical": None}
    files, note = _files(queries, canonical)
    of_files = {"manifest": canonical.manifest_uri, "files": files, "note": note}
    return {
        "ref": canonical.ref,
        "state": canonical.state.value,
        "canonical": {**json_of(canonical_shape(queries, canonical, seq)), **of_files},
    }


def _files(queries: Queries, canonical: Canonical) -> tuple[list[str], str | None]:
    """The files, and a note where they are gone or unreadable."""
    uri, uuid, asset = canonical.manifest_uri, canonical.uuid, asset_of(canonical.ref)
    if uri is None or uuid is None:
        return [], None
    if canonical.manifest_state == REMOVED:
        return [], "its data was removed"
    if queries.instances.removed([uuid]):
        return [], "its data was removed since"
    warehouse = Warehouse.of_manifest(uri, asset)
    try:
        manifest = read_manifest(warehouse, asset, uuid)
        check_recorded(warehouse, manifest, canonical)
        return list(file_paths(warehouse, manifest)), None
    except NO_FILES as error:
        return [], f"its files are not known: {error}"


class Listed(msgspec.Struct, frozen=True):
    """A partition of a list."""

    ref: Annotated[Ref, Column()]
    #: None for a missing one.
    state: Annotated[InstanceState | None, Column(none="missing")]
    uuid: Annotated[str | None, Column("instance")]
    why: Annotated[str | None, Column()]
    paused: Pause | None = None


class Run(NamedTuple):
    """Consecutive windows of time with the same state and reason: a line of a list for people.

    A run has a name that selects exactly its partitions, `ASSET@FROM..TO` (rule 2.5), so only windows of time are put together: the
    name of any other partition does not follow from its neighbors' names.
    """

    partitions: Sequence[Listed]
    #: The ref, or the range of them.
    name: Ref

    @property
    def why(self) -> str | None:
        """The reason of the first, and the number of further reasons that differ from it in names and times alone."""
        why = self.partitions[0].why
        n_others = len({partition.why for partition in self.partitions}) - 1
        return f"{why} (and {n_others} like it)" if n_others else why


def runs_of(dataset: DatasetSpec, existing: Iterable[Ref], listed: Iterable[Listed]) -> list[Run]:
    """The listed partitions in runs; `existing` are the existing refs in order: a run ends where an existing ref is not listed."""
    are_windows = [] if dataset.partitions is None else dimensions_of_time(dataset.partitions)
    if True not in are_windows:
        return [Run([partition], partition.ref) for partition in listed]
    n, time = len(are_windows), are_windows.index(True)
    windows = dict.fromkeys(key[time] for key in (_key_of(ref, n) for ref in existing) if key is not None)
    place_of = {window: place for place, window in enumerate(windows)}
    runs: list[list[Listed]] = []
    # By the keys of the other dimensions: the newest run, the likeness of its partitions, and the place that continues it.
    newest: dict[tuple[str, ...], tuple[list[Listed], object, int]] = {}
    for partition in listed:
        key, likeness = _key_of(partition.ref, n), _likeness(partition)
        # A partition that the definition has not any more has no neighbors.
        place = None if key is None else place_of.get(key[time])
        if key is None or place is None:
            runs.append([partition])
            continue
        others = (*key[:time], *key[time + 1 :])
        run, of_run, following = newest.get(others, ([], None, place))
        if place != following or likeness != of_run:
            run = []
            runs.append(run)
        run.append(partition)
        newest[others] = run, likeness, place + 1
    return [Run(run, _name_of(run, n, time)) for run in runs]


def _key_of(ref: Ref, n: int) -> list[str] | None:
    """The key of each of n dimensions; None for a key of another number of them."""
    if (key := partition_key_of(ref)) is None:
        return None
    keys = key.split(DIMENSIONS) if n > 1 else [key]
    return keys if len(keys) == n else None


def _likeness(partition: Listed) -> tuple[str | None, str | None]:
    return partition.state, None if partition.why is None else likeness_of(partition.ref, partition.why)


def _name_of(run: Sequence[Listed], n: int, time: int) -> Ref:
    first, last = run[0].ref, run[-1].ref
    keys, keys_of_last = _key_of(first, n), _key_of(last, n)
    if len(run) == 1 or keys is None or keys_of_last is None:
        return first
    keys[time] = f"{keys[time]}{RANGE}{keys_of_last[time]}"
    return make_ref(asset_of(first), DIMENSIONS.join(keys))
