"""From a ref whose data is lost or damaged to the command that repairs it."""

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from databuild_dagster.model.datasets import DatasetKind, DatasetSpec
from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.refs import Ref, asset_of, partition_key_of
from databuild_dagster.warehouse.errors import DAMAGE


class DamagedData(DatabuildError):
    """{ref} is damaged in instance {uuid}: {why}."""

    hint = "{repair}"


@contextmanager
def damage_named(spec: DatasetSpec | None, refs: Mapping[str, Ref]) -> Iterator[None]:
    """Raises `DamagedData` for a damaged manifest or file of these instances, whose refs are given by uuid (rule 6.16)."""
    try:
        yield
    except DAMAGE as error:
        # Files of other programs have no uuid in their paths.
        found = [uuid for uuid in refs if uuid in str(error.facts.get("path"))] or list(refs)
        if len(found) != 1:
            raise
        ref, why = refs[found[0]], error.message.rstrip(".")
        raise DamagedData(ref=ref, uuid=found[0], why=why, repair=repair_of(spec, ref)) from error


def repair_of(spec: DatasetSpec | None, ref: Ref) -> str:
    """A sentence with the command. `spec` is the ref's dataset, None if no code location registers it any longer."""
    if spec is None:
        return (
            f"Nothing builds it any longer; `databuild taint {shlex.quote(ref)} --reason damaged` keeps readers away."
        )
    if spec.kind is DatasetKind.BOUNDARY:
        asset, key = shlex.quote(asset_of(ref)), shlex.quote(partition_key_of(ref) or "")
        return (
            f"Put the file back, or send it again: `databuild lot look {asset}` records new files of the landing folder, "
            f"and `databuild lot arrive --replace {asset} {key} URI…` files elsewhere."
        )
    return f"`databuild build --rebuild {shlex.quote(ref)}` builds it again."
