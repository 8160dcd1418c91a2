"""The log of a Delta table: one file of JSON lines per version, create-only, so that of two writers one wins."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from databuild_dagster.features.tables.errors import PublishConflict, TableDamaged
from databuild_dagster.features.tables.port import Place
from databuild_dagster.model.logs import log_failure, logger

#: The folder of the log, in the root of the table.
LOG_FOLDER: Final = "_delta_log"
#: Versions between two checkpoints, which spare readers the files before them.
CHECKPOINT_EVERY: Final = 50
#: The key of our facts in a version's `commitInfo`.
OWN: Final = "databuild"

#: One line: the type of an action, and its facts.
Action = dict[str, dict[str, Any]]

_log = logger(__name__)


class DeltaLog:
    """The versions of one table."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def commit(self, version: int, actions: Sequence[Action]) -> None:
        """Create a version. Raises `PublishConflict` if it exists, `DiskTrouble`, `StorageTrouble`."""
        if not self._place.warehouse.storage.create_only(self.path_of(version), _lines(actions)):
            raise PublishConflict(entity=f"the table {self._place.shown}")
        if (version + 1) % CHECKPOINT_EVERY == 0:
            try:
                DeltaTable(self._place.root, version=version).create_checkpoint()
            except DeltaError as error:
                # It only makes reading faster, and the version is committed.
                log_failure(_log, f"the table of {self._place.asset} got no checkpoint", error)

    def actions(self, version: int) -> list[Action]:
        """The actions of a version; none for one that is not there any longer. Raises `TableDamaged`."""
        try:
            text = self._place.warehouse.storage.read_bytes(self.path_of(version))
        except FileNotFoundError:
            return []
        try:
            return [json.loads(line) for line in text.splitlines() if line.strip()]
        except ValueError as error:
            why = f"version {version} of its log is no JSON"
            raise TableDamaged(asset=self._place.asset, table=self._place.shown, why=why) from error

    def path_of(self, version: int) -> str:
        """The file of a version."""
        return f"{self._place.root}/{LOG_FOLDER}/{version:020}.json"

    def rewrite(self, version: int, actions: Sequence[Action]) -> None:
        """Replace a version by one with the same files and rows. Raises `DiskTrouble`, `StorageTrouble`."""
        self._place.warehouse.storage.replace(self.path_of(version), _lines(actions))

    def renew_checkpoint(self, table: DeltaTable) -> None:
        """Replace the checkpoints by one of the newest version, if there are any.

        Raises `DeltaError`, `DiskTrouble`, `StorageTrouble`.
        """
        storage, folder = self._place.warehouse.storage, f"{self._place.root}/{LOG_FOLDER}"
        found = [file.path for file in storage.list_files(folder, deep=False) if ".checkpoint." in file.path]
        newest = f"{folder}/{table.version():020}."
        if found:
            table.create_checkpoint()
            earlier = [path for path in found if not path.startswith(newest)]
            storage.remove_files(earlier, within=folder)


def own_facts(actions: Sequence[Action]) -> dict[str, Any] | None:
    """What databuild records about a version; None for a version of another writer."""
    infos = [action["commitInfo"] for action in actions if "commitInfo" in action]
    return next((info[OWN] for info in infos if OWN in info), None)


def _lines(actions: Sequence[Action]) -> bytes:
    return "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions).encode()
