"""From a ref whose data is lost or damaged to the command that repairs it."""

import shlex

from databuild_dagster.model.datasets import DatasetKind, DatasetSpec
from databuild_dagster.model.refs import Ref, asset_of, partition_key_of


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
