"""A store to fold a log into, thrown away afterwards: in a file of its own, since a big log does not fit into memory."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from databuild_dagster.store.store import Store


@contextmanager
def scratch_store() -> Iterator[Store]:
    """Nobody else opens it, so it may lie on whatever disk temporary files do; and what is lost with the machine is no loss."""
    with tempfile.TemporaryDirectory(prefix="databuild-scratch-") as folder:
        store = Store(f"sqlite:///{os.path.join(folder, 'scratch.db')}", shared=False)
        try:
            store.database.connection().execute("PRAGMA synchronous = OFF")
            yield store
        finally:
            store.close()
