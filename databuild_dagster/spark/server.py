"""From settings to a running local Spark server that any process of this home may use.

    <home>/spark/start.lock                 held by a process that starts or stops a server
                /<fingerprint>/server.json  its address, process and token; mode 0600
                              /clients.lock held by every process with a session there
                              /server.log, idle.log, spark.properties

Each fingerprint of fixed settings has a server. A new server stops servers with other settings that no process uses, and
`MAX_SERVERS` bounds the rest; running jobs are never stopped. A server outlives its starter; locks are the kernel's, so
a killed process leaves none. A process beside each server (`idle`) ends it when no process has used it for some time.

`spark-submit` is started here instead of PySpark's `spark.local.connect.reuse`, which has a single server per user for all
settings, refuses to start while the last server is stopping, needs 11 s instead of 6 (it sleeps in a shell script), and
calls its file format and its way to stop internal."""

import fcntl
import os
import secrets
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from databuild_dagster.spark import class_archive
from databuild_dagster.spark.endpoints import accepts, check_answers, check_reachable, free_ports
from databuild_dagster.spark.errors import (
    ServerFailed,
    ServerOfAnotherUser,
    SparkUnreachable,
    StrangeFolder,
    TooManyServers,
)
from databuild_dagster.spark.installed import JVM_OPTIONS, find_java, jvm_options, sail_command, sail_version
from databuild_dagster.spark.settings import LOOPBACK, SparkSettings, worker_python
from databuild_dagster.store.processes import PROCESSES

#: Not 127.0.0.1: PySpark's client sends a token without TLS only to a host of this name.
HOST = "localhost"
#: The user of all sessions, in the server's words; the token gives access to all of them.
USER = "databuild"

MAX_SERVERS = 3
READY_SECONDS = 90.0
#: Any process can take a free port before Spark does, or kill Spark.
START_RETRIES = 3
LOCK_SECONDS = READY_SECONDS + 30.0
STOP_SECONDS = 10.0
_POLL_SECONDS = 0.05

#: Java compiles code for the second time after ten times as many calls as by default: a server's first minutes cost a third less, and a
#: job of a minute costs the same. Without the second compiler such a job costs twice as much. Options of the user follow.
_COMPILER = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)

#: The module of the process beside a server.
_IDLE = "databuild_dagster.spark.idle"
_CONNECT_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


class ServerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The address, the token and the identity of a server."""

    pid: int
    #: The start of the process, in the kernel's words: process ids are reused.
    began: str
    port: int
    token: str
    fingerprint: str
    spark_version: str
    started_at: float
    ui_url: str | None = None
    #: It ends after this time without use; 0: never.
    idle_seconds: float = 0.0
    #: The place of the archive of its classes; empty if it has none.
    archive: str = ""

    @property
    def url(self) -> str:
        # A fixed user: PySpark would take $USER, which a process that interrupts orphans may not share.
        token = f"token={self.token};" if self.token else ""
        return f"sc://{HOST}:{self.port}/;{token}user_id={USER}"


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """A running server, as `databuild spark` shows it."""

    pid: int
    host: str
    port: int
    uptime_seconds: float
    version: str
    fingerprint: str
    #: Whether any process has a session there.
    in_use: bool
    log: str
    ui_url: str | None
    #: The server ends after this time, unless a process uses it; None while one does, and for a server that never ends by itself.
    ends_in_seconds: float | None


def use_server(settings: SparkSettings) -> ServerRecord:
    """The server for `settings`, started if there is none; this process is its client until it ends.

    Raises `JavaMissing`, `NoTemporaryFolder`, `ServerFailed`, `ServerOfAnotherUser`, `SparkUnreachable`, `StrangeFolder`,
    `TooManyServers`.
    """
    folder = settings.state_dir / settings.fingerprint()
    settings.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    if settings.home is None:
        check_owner(settings.state_dir)
    check_user(settings.state_dir)
    _make_private(folder)
    _become_client(folder)
    # Without the lock first: attaching is the common case, and need not wait for another start.
    record = load(folder)
    if record is not None and is_running(record) and accepts(HOST, record.port):
        check_answers(HOST, record.port)
        return record
    with _locked(settings.state_dir / "start.lock"):
        record = load(folder)
        if record is not None and _comes_up(record):
            return record
        _retire_others(settings.state_dir, folder)
        return _start(settings, folder)


def server_statuses(home: str | Path) -> tuple[ServerStatus, ...]:
    """The running servers of a home, the youngest first; nothing is started."""
    found = _running(SparkSettings(home=home).state_dir)
    return tuple(_status(*pair) for pair in sorted(found, key=lambda pair: -pair[0].started_at))


def _status(record: ServerRecord, folder: Path) -> ServerStatus:
    in_use, ends_in = _has_clients(folder), None
    if record.idle_seconds and not in_use:
        ends_in = max(0.0, record.idle_seconds - seconds_without_use(folder))
    return ServerStatus(
        pid=record.pid,
        host=HOST,
        port=record.port,
        uptime_seconds=max(0.0, time.time() - record.started_at),
        version=record.spark_version,
        fingerprint=record.fingerprint,
        in_use=in_use,
        log=str(folder / "server.log"),
        ui_url=record.ui_url,
        ends_in_seconds=ends_in,
    )


def stop_server(home: str | Path) -> bool:
    """Stop the servers of a home, used or not, and wait until they are gone; False if there was none."""
    state_dir = SparkSettings(home=home).state_dir
    folders = _folders(state_dir)
    if not folders:
        return False
    with _locked(state_dir / "start.lock"):
        # Counted, and not `any`: that would leave the rest running after the first.
        return sum(stop(folder) for folder in folders) > 0


def record_at(home: str | Path | None, port: int) -> ServerRecord | None:
    """The running server of a home at a port, for a process that knows a session of the server but not its token."""
    state_dir = SparkSettings(home=home).state_dir
    if home is None:
        check_owner(state_dir)
    return next((record for record, _ in _running(state_dir) if record.port == port), None)


def check_user(state_dir: Path) -> None:
    """Check that the servers below the folder could work for this user. Raises `StrangeFolder`, `ServerOfAnotherUser`."""
    check_usable(state_dir)
    for record, _ in _running(state_dir):
        check_server(state_dir, record.pid)


# Starting


def _start(settings: SparkSettings, folder: Path) -> ServerRecord:
    token, why = "" if settings.is_sail else secrets.token_urlsafe(24), ""
    archive = None if settings.is_sail else class_archive.archive_for(find_java(), _spark_home(), _pyspark_version())
    for _ in range(1 + START_RETRIES):
        port, ui_port = free_ports(2)
        if settings.is_sail:
            process = _launch_sail(folder, port)
        else:
            process = _launch_spark(settings, folder, port, ui_port, token, archive)
        # Before it is ready: if this process is killed meanwhile, others must find the server to stop it.
        record = _noted(process, settings, folder, port, ui_port, token, archive)
        if _becomes_ready(process, port):
            if record is None:
                raise ServerFailed(why="it ended as soon as it was ready", log=folder / "server.log")
            _launched([sys.executable, "-m", _IDLE, str(folder)], folder, dict(os.environ), "idle.log")
            return record
        with suppress(FileNotFoundError):
            os.unlink(folder / "server.json")
        status = _status_of(process)
        why = _why_not_ready(status, folder / "server.log")
        if archive is not None and status == -signal.SIGABRT:
            # A JVM that crashed may have crashed by it. The next server archives the classes again.
            archive.unlink(missing_ok=True)
        if status is None or (status >= 0 and "BindException" not in why):
            break
    raise ServerFailed(why=why, log=folder / "server.log")


def _status_of(process: subprocess.Popen[bytes]) -> int | None:
    """The exit status of a server that is not ready; None if it did not end, and is killed now."""
    status = process.poll()
    if status is None:
        process.kill()
        process.wait(STOP_SECONDS)
    return status


def _why_not_ready(status: int | None, log: Path) -> str:
    """The reason for people, with the last error in the log. Without an error in it, the last line is the reason only of a
    server that ended by itself."""
    if status is None:
        how = f"it did not answer within {READY_SECONDS:.0f} s"
    elif status < 0:
        how = f"signal {-status} killed it"
    else:
        how = f"it ended with exit status {status}"
    lines: list[str] = []
    with suppress(OSError):
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if "Exception" in line or "Error" in line or "ERROR" in line]
    last = (errors or (lines if status is not None and status > 0 else []))[-1:]
    return ": ".join([how, *(line[:300].rstrip(".") for line in last)])


def _noted(
    process: subprocess.Popen[bytes],
    settings: SparkSettings,
    folder: Path,
    port: int,
    ui_port: int,
    token: str,
    archive: Path | None,
) -> ServerRecord | None:
    """The published record of a starting server; None if it has ended already."""
    began = PROCESSES.start_of(process.pid)
    if began is None:
        return None
    record = ServerRecord(
        pid=process.pid,
        began=began,
        port=port,
        token=token,
        fingerprint=settings.fingerprint(),
        spark_version=f"Sail {sail_version()}" if settings.is_sail else _pyspark_version(),
        started_at=time.time(),
        ui_url=None if settings.is_sail else _ui_url(settings, ui_port),
        idle_seconds=settings.idle_minutes * 60.0,
        archive=str(archive or ""),
    )
    _write_private(folder / "server.json", msgspec.json.encode(record))
    return record


def _pyspark_version() -> str:
    import pyspark

    return str(pyspark.__version__)


def _spark_home() -> str:
    from pyspark.find_spark_home import _find_spark_home

    return str(_find_spark_home())


def _launch_sail(folder: Path, port: int) -> subprocess.Popen[bytes]:
    return _launched(sail_command(LOOPBACK, port), folder, _environment())


def _launch_spark(
    settings: SparkSettings, folder: Path, port: int, ui_port: int, token: str, archive: Path | None
) -> subprocess.Popen[bytes]:
    spark_home = _spark_home()
    # Not `session_config`: the settings of one Dagster run are for its own session.
    config = {"spark.ui.port": str(ui_port), **settings.all_config()}
    config["spark.connect.grpc.binding.address"] = LOOPBACK
    config["spark.connect.grpc.binding.port"] = str(port)
    _write_private(folder / "spark.properties", _properties(config).encode())
    environment = _environment() | {
        "JAVA_HOME": find_java().home,
        "SPARK_HOME": spark_home,
        "PYSPARK_PYTHON": worker_python(),
        "SPARK_LOCAL_IP": LOOPBACK,
        JVM_OPTIONS: f"{_COMPILER} {class_archive.options_with(archive, jvm_options(os.environ, folder))}",
        # In the environment and in no argument, where `ps` would show it.
        "SPARK_CONNECT_AUTHENTICATE_TOKEN": token,
    }
    command = [os.path.join(spark_home, "bin", "spark-submit"), "--class", _CONNECT_SERVER]
    command += ["--master", settings.master, "--name", settings.app_name]
    # The user's spark-defaults.conf still counts, below what is given here.
    command += ["--load-spark-defaults", "--properties-file", str(folder / "spark.properties")]
    return _launched(command, folder, environment)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in class_archive.NOT_FOR_A_SERVER}


def _launched(
    command: list[str], folder: Path, environment: dict[str, str], log_name: str = "server.log"
) -> subprocess.Popen[bytes]:
    """The process of a server, or the process beside it; both outlive this process."""
    log = folder / log_name
    with suppress(FileNotFoundError):
        os.replace(log, folder / f"{log_name}.1")
    with open(log, "wb") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # A new session: Ctrl-C and the end of the terminal must not reach it.
            start_new_session=True,
        )
    # Kept, so that Python reaps it when it ends first, and gives no warning that it is still running.
    _started_here.append(process)
    return process


_started_here: list[subprocess.Popen[bytes]] = []


def _comes_up(record: ServerRecord) -> bool:
    """Wait until a recorded server answers; False if it ends. Raises `SparkUnreachable` after `READY_SECONDS`."""
    deadline = record.started_at + READY_SECONDS
    while is_running(record):
        try:
            check_reachable(HOST, record.port)
        except SparkUnreachable:
            if time.time() > deadline:
                raise
        else:
            check_answers(HOST, record.port)
            return True
        time.sleep(_POLL_SECONDS)
    return False


def _becomes_ready(process: subprocess.Popen[bytes], port: int) -> bool:
    deadline = time.monotonic() + READY_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        if accepts(HOST, port):
            # Another process may have taken the port; then ours ends by itself.
            time.sleep(_POLL_SECONDS)
            return process.poll() is None
        time.sleep(_POLL_SECONDS)
    return False


def _retire_others(state_dir: Path, wanted: Path) -> None:
    """Stop the servers that no process uses. Raises `TooManyServers`."""
    kept = 0
    for _, folder in _running(state_dir):
        if folder == wanted:
            continue
        with if_without_clients(folder) as without_clients:
            if without_clients:
                stop(folder)
            else:
                kept += 1
    if kept >= MAX_SERVERS:
        raise TooManyServers(count=kept, folder=state_dir)


def stop(folder: Path) -> bool:
    """Terminate the recorded process, then kill it; both bounded. False if it had ended."""
    record = load(folder)
    stopped = False
    if record is not None:
        stopped = end(record)
        with suppress(FileNotFoundError):
            os.unlink(folder / "server.json")
    return stopped


def end(record: ServerRecord) -> bool:
    """The same for the process of a record, which stays."""
    stopped = False
    for how in (signal.SIGTERM, signal.SIGKILL):
        if not is_running(record):
            break
        with suppress(ProcessLookupError):
            os.kill(record.pid, how)
            stopped = True
        deadline = time.monotonic() + STOP_SECONDS
        while is_running(record) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
    return stopped


# Clients and locks


def _become_client(folder: Path) -> None:
    """Hold the folder's lock, shared, until this process ends: a server with clients is not stopped.

    It is never released, because frames may outlive their session object.
    """
    key = (os.getpid(), str(folder))
    if key in _client_of:
        return
    descriptor = os.open(folder / "clients.lock", os.O_RDWR | os.O_CREAT, 0o600)
    _wait_for_lock(descriptor, fcntl.LOCK_SH, folder / "clients.lock")
    note_use(folder)
    _client_of[key] = descriptor


#: By process id, too: a forked child shares the descriptor, and needs its own.
_client_of: dict[tuple[int, str], int] = {}


def _has_clients(folder: Path) -> bool:
    with if_without_clients(folder) as without_clients:
        return not without_clients


def note_use(folder: Path) -> float:
    """Say that the server is in use now; it has been without use for 0.0 seconds."""
    os.utime(folder / "clients.lock")
    return 0.0


def seconds_without_use(folder: Path) -> float:
    """Since a process was last seen to use the server."""
    return time.time() - os.stat(folder / "clients.lock").st_mtime


@contextmanager
def if_without_clients(folder: Path) -> Iterator[bool]:
    """True if no process uses this server; none can start to while the block runs."""
    descriptor = os.open(folder / "clients.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _wait_for_lock(descriptor, fcntl.LOCK_EX, path)
        yield
    finally:
        os.close(descriptor)


def _wait_for_lock(descriptor: int, kind: int, path: Path) -> None:
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                why = f"another process has been starting or stopping one for {LOCK_SECONDS:.0f} s"
                raise ServerFailed(why=why, log=path) from None
            time.sleep(_POLL_SECONDS)


# Records and processes


def load(folder: Path) -> ServerRecord | None:
    """The record of a server, whether it runs or not."""
    try:
        return msgspec.json.decode((folder / "server.json").read_bytes(), type=ServerRecord)
    except (OSError, msgspec.DecodeError):
        # A damaged record counts as absent: the next server writes a new one.
        return None


def _folders(state_dir: Path) -> list[Path]:
    return sorted(path.parent for path in state_dir.glob("*/server.json"))


def _running(state_dir: Path) -> list[tuple[ServerRecord, Path]]:
    found = ((load(folder), folder) for folder in _folders(state_dir))
    return [(record, folder) for record, folder in found if record is not None and is_running(record)]


def is_running(record: ServerRecord) -> bool:
    """Whether the recorded process runs."""
    # A server of this process stays in the process table until it is polled.
    for process in _started_here:
        if process.pid == record.pid:
            process.poll()
    return PROCESSES.start_of(record.pid) == record.began


def _make_private(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for path in (folder, folder.parent):
        os.chmod(path, 0o700)


def _write_private(path: Path, contents: bytes) -> None:
    """Write a file whole or not at all, for this user only: it may hold the token."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(contents)
    os.replace(temporary, path)


def _properties(config: dict[str, str]) -> str:
    def escaped(value: str) -> str:
        return value.replace("\\", "\\\\").replace("\n", "\\n")

    return "".join(f"{key}={escaped(value)}\n" for key, value in sorted(config.items()))


def _ui_url(settings: SparkSettings, ui_port: int) -> str | None:
    config = settings.all_config()
    if config["spark.ui.enabled"] != "true":
        return None
    return f"http://{LOOPBACK}:{config.get('spark.ui.port', ui_port)}"


# Owners: another user's folder or server could neither be trusted nor write for this one.


def check_owner(folder: Path) -> None:
    """Raise `StrangeFolder` for a folder in the temp folder that a different user prepared, with their server in it."""
    with suppress(FileNotFoundError):
        found = os.lstat(folder)
        if not stat.S_ISDIR(found.st_mode):
            raise StrangeFolder(folder=folder, why="it is a link or a file")
        if found.st_uid != os.getuid():
            raise StrangeFolder(folder=folder, why=f"it belongs to the user with id {found.st_uid}")


def check_usable(folder: Path) -> None:
    """Raise `StrangeFolder` for a folder that this process may not use, such as a folder of a different user."""
    with suppress(FileNotFoundError):
        owner = os.stat(folder).st_uid
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            raise StrangeFolder(folder=folder, why=f"it belongs to the user with id {owner}")


def check_server(folder: Path, pid: int) -> None:
    """Raise `ServerOfAnotherUser` for a server that would write into folders which this process makes."""
    theirs = PROCESSES.user_of(pid)
    # Without an answer it has ended.
    if theirs is not None and theirs != os.getuid():
        raise ServerOfAnotherUser(folder=folder, pid=pid, theirs=theirs, ours=os.getuid())
