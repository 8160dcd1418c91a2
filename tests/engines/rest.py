"""An independent REST catalog: publications one by one and in pairs, a server that is killed, and one that refuses to expire.

    make test-rest-catalog

The server is Lakana, in an environment of its own. It has tables below three namespaces only, and expires snapshots by itself, so it
refuses `gc`, which then keeps the data.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

import msgspec
import pyiceberg.catalog
from pyiceberg.catalog import load_catalog
from pyiceberg.utils.config import Config

from databuild_dagster.features.tables.errors import CatalogAway
from tests.support.free_port import free_port
from tests.support.processes import start_server
from tests.support.published import DAYS, ICEBERG, PublishedWorld
from tests.support.publisher_processes import publishers
from tests.support.table_readers import rows_as_of, rows_of

NAME, CATALOG, ENVIRONMENT = "gold.sales", "rest", "dev"
START_SECONDS = 60.0
PAIRS = 3


class Server:
    """Lakana on a port and in a folder of its own."""

    def __init__(self, program: str, folder: Path) -> None:
        self._program, self._folder, self._port = program, folder, free_port()
        self._token_file = folder / "token"
        self._environment = os.environ | {
            "LAKANA_DATABASE__URL": f"sqlite:///{folder}/lakana.db",
            "LAKANA_BOOTSTRAP_TOKEN_FILE": str(self._token_file),
            "LAKANA_HOST": "127.0.0.1",
            "LAKANA_PORT": str(self._port),
        }
        subprocess.run([program, "migrate"], env=self._environment, check=True, capture_output=True, timeout=120)
        self.start()
        lake = {"scheme": "file", "root": f"file://{folder}/lake"}
        self._ask("/api/v1/environments", {"name": ENVIRONMENT, "storage": lake})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def token(self) -> str:
        return self._token_file.read_text().strip()

    def start(self) -> None:
        log = self._folder / "log"
        self._process = start_server([self._program], folder=self._folder, environment=self._environment, log=log)
        deadline, pause = time.monotonic() + START_SECONDS, threading.Event()
        while True:
            try:
                self._ask("/v1/config")
                return
            except OSError:
                assert time.monotonic() < deadline, f"no server within {START_SECONDS:.0f} s: {log.read_text()[-2000:]}"
                pause.wait(0.2)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(START_SECONDS)

    def _ask(self, path: str, body: object = None) -> None:
        headers = {"Content-Type": "application/json"}
        if self._token_file.exists():
            headers["Authorization"] = f"Bearer {self.token}"
        data = None if body is None else json.dumps(body).encode()
        urllib.request.urlopen(urllib.request.Request(self.url + path, data, headers), timeout=30).close()


def move(world: PublishedWorld, number: int) -> None:
    if world.state(world.ref(DAYS[0])) is not None:
        world.taint(world.ref(DAYS[0]))
    world.build(DAYS[0], {"x": [number]})


def assert_up_to_date(world: PublishedWorld, n_snapshots: int) -> None:
    table = load_catalog(CATALOG).load_table(NAME)
    assert rows_of(table.scan().to_arrow().to_pylist()) == rows_as_of(world, world.seq)
    seqs = [int(found.summary.additional_properties["databuild.seq"]) for found in table.snapshots()]
    assert len(seqs) == len(set(seqs)) == n_snapshots


def prove(server: Server, home: Path) -> None:
    """Each step leaves the table with the rows of the log, and one snapshot more."""
    world = PublishedWorld(home, msgspec.structs.replace(ICEBERG, catalog=CATALOG, name=NAME))
    move(world, 0)
    world.publish()
    assert_up_to_date(world, 1)
    with publishers(home) as processes:
        for number in range(1, PAIRS + 1):
            move(world, number)
            assert processes.run({}, {}) == [0, 0]
            assert_up_to_date(world, 1 + number)
    server.kill()
    move(world, PAIRS + 1)
    try:
        world.publish()
        raise AssertionError("a killed server has answered")
    except CatalogAway as away:
        assert server.token not in str(away)
    server.start()
    world.publish()
    assert_up_to_date(world, PAIRS + 2)
    world.close()


def main(program: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        server = Server(str(Path(program).absolute()), Path(folder))
        try:
            settings = {"TYPE": "rest", "URI": server.url, "TOKEN": server.token, "PREFIX": ENVIRONMENT}
            os.environ |= {f"PYICEBERG_CATALOG__{CATALOG.upper()}__{name}": text for name, text in settings.items()}
            # pyiceberg reads its configuration when it is imported.
            pyiceberg.catalog._ENV_CONFIG = Config()
            prove(server, Path(folder, "home"))
        finally:
            server.kill()
    print(f"A REST catalog: {PAIRS + 2} snapshots, {PAIRS} pairs of publishers, one killed server.")


if __name__ == "__main__":
    main(sys.argv[1])
