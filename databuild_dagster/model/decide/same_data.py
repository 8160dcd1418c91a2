"""Results with the rows of the last live instance of their ref (rule 4.8).

An unknown hash equals nothing, and neither does anything that a downstream taint has reached: what was built from it carries the
taint, and only a build ends that.
"""

from collections.abc import Collection, Mapping

from msgspec.structs import replace

from databuild_dagster.model import events as e
from databuild_dagster.model.decide.context import Deciding
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.removals import REMOVED
from databuild_dagster.model.rows import InstanceRow, RefRow


def with_same_data(
    runs: tuple[e.RunSuccess, ...], built: Collection[tuple[RefRow, InstanceRow]], deciding: Deciding
) -> tuple[e.RunSuccess, ...]:
    """The successes, each output with the uuid of the last live instance if that has equal rows. `built` are their outputs."""
    hashed = {output.ref for run in runs for output in run.outputs if _content_hash(output) is not None}
    named = [output for run in runs for output in run.outputs if output.same_data_as is not None]
    if not hashed and not named:
        return runs
    last = _last_live(
        {ref.id: ref.ref for ref, _ in built if ref.ref in hashed}, {row.id for _, row in built}, deciding
    )
    return tuple(
        replace(
            run,
            outputs=tuple(
                replace(output, same_data_as=_same(output, last.get(output.ref), deciding)) for output in run.outputs
            ),
        )
        for run in runs
    )


def births_with_same_data(
    births: Collection[e.Birth], rows: Mapping[Ref, RefRow], deciding: Deciding
) -> tuple[e.Birth, ...]:
    """Instances of a different log, each with the uuid of the last live instance here if that has equal rows."""
    hashed = {birth.ref for birth in births if _content_hash(birth) is not None}
    last = _last_live({row.id: ref for ref, row in rows.items() if ref in hashed}, (), deciding) if hashed else {}
    return tuple(replace(birth, same_as=_same(birth, last.get(birth.ref), deciding)) for birth in births)


def _last_live(refs: dict[int, str], built: Collection[int], deciding: Deciding) -> dict[str, InstanceRow]:
    """By ref, the instance that readers saw last before the build, among instances that were ever live."""
    pointings = deciding.view.pointings(refs)
    seen = deciding.view.instances_by_id({instance_id for _, _, instance_id in pointings if instance_id not in built})
    # In order of seq, so that the last one stays.
    return {
        refs[ref_id]: seen[instance_id]
        for ref_id, _, instance_id in pointings
        if instance_id in seen and seen[instance_id].was_live
    }


def _same(output: e.OutputFact | e.Birth, last: InstanceRow | None, deciding: Deciding) -> str | None:
    content_hash = _content_hash(output)
    if last is None or content_hash is None or last.content_hash != content_hash:
        return None
    if last.n_spreading or last.manifest_state == REMOVED:
        return None
    read = deciding.view.instances_by_uuid(output.inputs.values())
    return None if any(row.n_spreading for row in read.values()) else last.uuid


def _content_hash(output: e.OutputFact | e.Birth) -> str | None:
    return output.manifest.content_hash if output.manifest is not None else None
