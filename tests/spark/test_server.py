"""One server per home and fixed settings, found again by every process, replaced when it dies."""

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from unittest.mock import ANY

import pyspark
import pytest
from pyspark.sql.connect.client import DefaultChannelBuilder

from databuild_dagster.spark import endpoints
from databuild_dagster.spark import server as server_module
from databuild_dagster.spark.class_archive import archive_for
from databuild_dagster.spark.errors import ServerFailed, ServerOfAnotherUser, SparkUnreachable, StrangeFolder
from databuild_dagster.spark.failures import explain_failure, is_transient
from databuild_dagster.spark.installed import JVM_OPTIONS, find_java
from databuild_dagster.spark.interrupt import interrupt_begun
from databuild_dagster.spark.server import server_statuses, stop_server, use_server
from databuild_dagster.spark.session import (
    active_in_thread,
    check_startable,
    interrupt,
    open_session,
    spark_ui_url,
    tag_operations,
)
from databuild_dagster.spark.settings import SparkSettings
from databuild_dagster.store.processes import PROCESSES
from tests.spark.stand_in import (
    complaining_spark,
    killed_spark,
    listening_spark,
    silent_spark,
    spark_that_archives_crash,
)
from tests.support.cluster import wait_until
from tests.support.endless import ENDLESS, ROWS, SLEEP
from tests.support.spark_servers import server_status
from tests.support.spark_ui import nothing_runs

USE_AND_SAY_WHICH = """
import sys
from databuild_dagster.spark.settings import SparkSettings
from databuild_dagster.spark.server import use_server
config = dict(pair.split("=") for pair in sys.argv[2:])
print(use_server(SparkSettings(home=sys.argv[1], config=config)).pid)
"""


def a_process(home, *config):
    """Uses the server of a home, and ends."""
    command = [sys.executable, "-c", USE_AND_SAY_WHICH, str(home), *config]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def answer(process):
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return int(out)


@pytest.fixture
def new_home(tmp_path, monkeypatch):
    """Whose servers are stand-ins."""
    monkeypatch.setenv("SPARK_HOME", listening_spark(tmp_path / "spark of stand-ins"))
    home = tmp_path / "home"
    yield home
    stop_server(home)


@pytest.fixture
def a_stranger():
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def record_of(home, fingerprint, process, **changes):
    """As if `process` were the server of a home."""
    folder = SparkSettings(home=home).state_dir / fingerprint
    folder.mkdir(parents=True)
    record = {
        "pid": process.pid,
        "began": PROCESSES.start_of(process.pid),
        "port": 1,
        "token": "t",
        "fingerprint": fingerprint,
        "spark_version": "4.3.0",
        "started_at": time.time(),
    }
    (folder / "server.json").write_text(json.dumps(record | changes))
    return folder


def test_two_processes_at_once_start_one_server_and_a_killed_one_is_replaced(new_home):
    first, second = a_process(new_home), a_process(new_home)

    pids = {answer(first), answer(second)}

    assert pids == {server_status(new_home).pid}
    assert not server_status(new_home).in_use

    os.kill(server_status(new_home).pid, signal.SIGKILL)
    assert answer(a_process(new_home)) == server_status(new_home).pid
    assert server_status(new_home).pid not in pids


def test_other_fixed_settings_get_another_server_and_the_one_in_use_goes_on(new_home):
    mine = use_server(SparkSettings(home=new_home)).pid

    other = answer(a_process(new_home, "spark.driver.memory=1g"))

    assert {status.pid for status in server_statuses(new_home)} == {mine, other}
    assert {status.pid for status in server_statuses(new_home) if status.in_use} == {mine}
    assert use_server(SparkSettings(home=new_home)).pid == mine


def test_a_server_that_ends_at_its_start_is_reported_with_its_last_error(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARK_HOME", complaining_spark(tmp_path / "spark", "java.lang.Error: no heap"))

    with pytest.raises(ServerFailed, match=r"it ended with exit status 1: .*java\.lang\.Error: no heap.*server\.log"):
        use_server(SparkSettings(home=tmp_path))

    assert server_statuses(tmp_path) == ()


def test_a_server_that_is_killed_while_it_starts_is_started_again(tmp_path, monkeypatch, new_home):
    monkeypatch.setenv("SPARK_HOME", killed_spark(tmp_path / "spark", listening_spark(tmp_path / "second")))

    record = use_server(SparkSettings(home=new_home))

    assert server_status(new_home).pid == record.pid


def test_a_start_that_an_archive_of_classes_crashes_is_repeated_without_it(tmp_path, monkeypatch, new_home):
    monkeypatch.setenv(
        "SPARK_HOME", spark_that_archives_crash(tmp_path / "spark", listening_spark(tmp_path / "second"))
    )
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(JVM_OPTIONS)
    archive = archive_for(find_java(), str(tmp_path / "spark"), pyspark.__version__)
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"damaged")

    record = use_server(SparkSettings(home=new_home))

    assert server_status(new_home).pid == record.pid
    assert not archive.exists()


def test_the_seconds_until_an_unused_server_ends_are_shown(new_home):
    answer(a_process(new_home))
    (unused,) = server_statuses(new_home)
    assert 0 < unused.ends_in_seconds <= 30 * 60

    use_server(SparkSettings(home=new_home))

    (used,) = server_statuses(new_home)
    assert (used.in_use, used.ends_in_seconds) == (True, None)


def test_a_server_that_is_always_killed_is_reported_with_the_signal(tmp_path, monkeypatch):
    """The last line of its log is a warning, and no reason."""
    monkeypatch.setenv("SPARK_HOME", killed_spark(tmp_path / "spark"))

    with pytest.raises(ServerFailed) as caught:
        use_server(SparkSettings(home=tmp_path))

    assert caught.value.message == "The local Spark server did not start: signal 9 killed it."


def test_a_server_that_does_not_answer_is_reported_with_the_seconds_and_killed(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARK_HOME", silent_spark(tmp_path / "spark"))
    monkeypatch.setattr(server_module, "READY_SECONDS", 1.0)

    with pytest.raises(ServerFailed) as caught:
        use_server(SparkSettings(home=tmp_path))

    assert caught.value.message == "The local Spark server did not start: it did not answer within 1 s."
    assert server_statuses(tmp_path) == ()


def test_a_folder_that_another_user_could_prepare_is_not_used(tmp_path, monkeypatch):
    """Without a home its name is known; it could hold the address of that user's server."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    settings, elsewhere = SparkSettings(), tmp_path / "elsewhere" / "spark"
    elsewhere.mkdir(parents=True)
    settings.state_dir.symlink_to(elsewhere)

    try:
        for use in (lambda: use_server(settings), lambda: server_module.record_at(None, 1)):
            with pytest.raises(StrangeFolder, match="it is a link or a file"):
                use()

        assert list(elsewhere.iterdir()) == []
    finally:
        # Without the check, a real server has started there.
        stop_server(elsewhere.parent)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to another user")
def test_a_folder_of_another_user_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    settings = SparkSettings()
    settings.state_dir.mkdir()
    os.chown(settings.state_dir, 65534, 65534)

    with pytest.raises(StrangeFolder, match="it belongs to the user with id 65534"):
        use_server(settings)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can start a process of another user")
def test_a_server_of_another_user_is_refused_before_anything_is_recorded(tmp_path):
    """Root may connect to it; it could not write into a folder that root makes for it."""
    settings = SparkSettings(home=tmp_path)
    with subprocess.Popen(["sleep", "600"], user=65534) as theirs:
        record_of(tmp_path, settings.fingerprint(), theirs)

        try:
            for use in (use_server, check_startable):
                with pytest.raises(ServerOfAnotherUser, match=rf"process {theirs.pid}, runs as the user with id 65534"):
                    use(settings)
        finally:
            theirs.kill()


class Relay:
    """Between a client and the shared server; it can be killed without the server's harm."""

    def __init__(self, target):
        code = RELAY.format(target=target)
        self._process = subprocess.Popen([sys.executable, "-IS", "-c", code], stdout=subprocess.PIPE, text=True)
        self.port = int(self._process.stdout.readline())

    def kill(self):
        self._process.kill()
        self._process.wait(250)
        self._process.stdout.close()


RELAY = """
import socket, threading

def copy(source, target):
    while data := source.recv(65536):
        target.sendall(data)
    target.shutdown(socket.SHUT_WR)

server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
while True:
    near, far = server.accept()[0], socket.create_connection(("127.0.0.1", {target}))
    for pair in ((near, far), (far, near)):
        threading.Thread(target=copy, args=pair, daemon=True).start()
"""


@pytest.fixture
def relay(spark_home):
    relay = Relay(use_server(SparkSettings(home=spark_home)).port)
    yield relay
    relay.kill()


def test_a_session_whose_server_is_lost_says_so_soon_and_may_be_tried_again(spark_home, relay):
    record = use_server(SparkSettings(home=spark_home))
    url = record.url.replace(str(record.port), str(relay.port), 1)
    orphan = open_session(SparkSettings(mode="remote", url=url))
    assert orphan.range(3).count() == 3

    relay.kill()

    began = time.monotonic()
    with pytest.raises(Exception) as caught:  # noqa: PT011 - PySpark decides the class
        orphan.range(3).count()
    assert time.monotonic() - began < 120, "PySpark by itself tries for ten minutes"
    assert is_transient(caught.value)
    assert "server was lost" in explain_failure(caught.value)


def test_a_function_of_spark_uses_the_session_of_its_call_and_not_the_default_one(spark, home):
    """The default one of the process may belong to a server that has stopped."""
    default, other = type(spark).active(), open_session(SparkSettings(home=home))

    with active_in_thread(other):
        in_the_block = type(spark).active()

    assert in_the_block is other
    assert in_the_block is not default
    assert type(spark).active() is default


def test_what_others_must_not_read_is_readable_by_this_user_only(new_home):
    use_server(SparkSettings(home=new_home))
    folder = next((new_home / "spark").glob("*/server.json")).parent

    modes = {
        path.name: path.stat().st_mode & 0o777
        for path in (folder, *folder.glob("server.json"), *folder.glob("*.properties"))
    }

    assert modes == {folder.name: 0o700, "server.json": 0o600, "spark.properties": 0o600}


def test_a_running_operation_is_interrupted_by_its_tag_and_may_be_tried_again(spark):
    failures, tasks_run = [], threading.Event()

    def on_progress(stages, inflight_tasks, operation_id, done):
        if inflight_tasks:
            tasks_run.set()

    def work():
        with tag_operations(spark, "job-run-1"):
            try:
                spark.sql(ENDLESS).collect()
            except Exception as error:
                failures.append(error)

    spark.registerProgressHandler(on_progress)
    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    began = tasks_run.wait(120)
    spark.removeProgressHandler(on_progress)
    interrupted = interrupt(spark, "job-run-1")
    worker.join(120)

    assert began, "Spark ran no task within two minutes"
    assert not worker.is_alive(), "the work goes on two minutes after it was interrupted"
    assert len(interrupted) == 1
    assert [(str(failure), is_transient(failure)) for failure in failures] == [(ANY, True)]
    assert "interrupted" in explain_failure(failures[0])
    # The tasks have ended too, and not only the waiting for them: there is room for others.
    assert spark.range(3).count() == 3


@pytest.mark.parametrize("n_tasks", [pytest.param(1, marks=pytest.mark.extended), 2])
def test_what_is_stopped_as_it_begins_leaves_no_job_behind(spark, n_tasks):
    """Interrupted a moment too early, it would be reported as canceled and run on."""
    failures, tag = [], f"job-run-{uuid.uuid4()}"

    def work():
        with tag_operations(spark, tag):
            endless = spark.range(0, ROWS, 1, n_tasks).selectExpr(SLEEP).selectExpr("count(slept) AS n")
            try:
                endless.write.format("noop").mode("overwrite").save()
            except Exception as error:
                failures.append(error)

    def is_stopped():
        assert interrupt_begun(spark, tag)
        return not worker.is_alive()

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    try:
        wait_until(is_stopped, "what was to be stopped has ended", 120)
    finally:
        interrupt(spark, tag)

    assert [is_transient(failure) for failure in failures] == [True]
    wait_until(
        lambda: nothing_runs(spark_ui_url(spark), tag), "the Spark UI says that nothing of it runs any more", 120
    )


def test_a_server_that_runs_and_does_not_answer_is_unreachable_and_not_doubled(tmp_path, a_stranger):
    settings = SparkSettings(home=tmp_path)
    long_ago = time.time() - server_module.READY_SECONDS
    record_of(tmp_path, settings.fingerprint(), a_stranger, started_at=long_ago)

    with pytest.raises(SparkUnreachable):
        open_session(settings)


def test_a_frozen_server_is_unreachable_and_the_command_that_replaces_it_is_named(tmp_path, a_stranger, monkeypatch):
    """The kernel accepts its connections."""
    monkeypatch.setattr(endpoints, "ANSWER_SECONDS", 0.2)
    settings = SparkSettings(home=tmp_path)

    with socket.create_server(("127.0.0.1", 0)) as frozen:
        record_of(tmp_path, settings.fingerprint(), a_stranger, port=frozen.getsockname()[1])
        with pytest.raises(SparkUnreachable, match="databuild spark stop"):
            use_server(settings)


def test_a_session_asks_a_silent_server_for_a_sign_of_life_in_the_middle_of_a_job():
    """Otherwise a frozen server would keep the job without end; PySpark's own settings bound it since 4.3."""
    builder = DefaultChannelBuilder("sc://localhost:1/;token=t;user_id=databuild")

    assert builder.keepalive_enabled
    assert builder.keepalive_time_ms + builder.keepalive_timeout_ms <= 90_000


START_AND_BE_KILLED = """
import os, signal, sys
from databuild_dagster.spark import server
from databuild_dagster.spark.settings import SparkSettings
server._becomes_ready = lambda process, port: os.kill(os.getpid(), signal.SIGKILL)
server.use_server(SparkSettings(home=sys.argv[1]))
"""


def test_a_server_whose_starter_is_killed_before_it_is_ready_is_used_by_the_next(new_home):
    killed = subprocess.run([sys.executable, "-c", START_AND_BE_KILLED, str(new_home)], timeout=240, check=False)
    assert killed.returncode == -signal.SIGKILL
    started = server_status(new_home).pid

    assert answer(a_process(new_home)) == started


def test_a_server_that_starts_and_ends_again_is_not_waited_for(tmp_path, a_stranger):
    settings = SparkSettings(home=tmp_path)
    folder = record_of(tmp_path, settings.fingerprint(), a_stranger)
    record = server_module.load(folder)
    threading.Timer(0.2, a_stranger.kill).start()

    assert not server_module._comes_up(record)
    assert time.time() < record.started_at + server_module.READY_SECONDS


def test_stopping_ends_the_process_that_was_recorded(tmp_path, a_stranger):
    record_of(tmp_path, "abc", a_stranger)

    stopped = stop_server(tmp_path)

    assert stopped
    assert a_stranger.wait(250) == -signal.SIGTERM
    assert server_status(tmp_path) is None
    assert not stop_server(tmp_path)


def test_a_process_that_only_has_the_same_id_is_left_alone(tmp_path, a_stranger):
    record_of(tmp_path, "abc", a_stranger, began="1")

    assert server_status(tmp_path) is None
    assert not stop_server(tmp_path)

    assert a_stranger.poll() is None


def test_an_unused_server_is_replaced_and_one_in_use_is_not(tmp_path, a_stranger):
    used = record_of(tmp_path, "used", a_stranger)
    idle = subprocess.Popen(["sleep", "600"])
    record_of(tmp_path, "idle", idle)

    with open(used / "clients.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        server_module._retire_others(SparkSettings(home=tmp_path).state_dir, tmp_path / "wanted")

    assert idle.wait(250) == -signal.SIGTERM
    assert a_stranger.poll() is None


def test_a_home_without_a_server_has_no_status_and_nothing_to_stop(tmp_path):
    assert server_status(tmp_path) is None
    assert not stop_server(tmp_path)
    assert list(tmp_path.iterdir()) == []
