"""For every folder: what a run leaves out, who runs a test, in which order, and the servers that tests share."""

from __future__ import annotations

import gc
import logging
import os
import signal
import subprocess
from argparse import BooleanOptionalAction
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import is_hypothesis_test

from databuild_dagster.feature import built_in
from databuild_dagster.spark.installed import JVM_OPTIONS
from tests.support import reporting
from tests.support.examples import choose_examples
from tests.support.guard import dismiss, guard
from tests.support.jvm_elsewhere import jvm, patient, running_jvm, start_jvm
from tests.support.jvm_options import options_of_young_jvms
from tests.support.object_store import bucket, running_s3, s3
from tests.support.seaweedfs import running_seaweedfs, seaweedfs
from tests.support.spark_elsewhere import running_sail, sail, sail_by_seaweedfs
from tests.support.spark_server import spark_home, stop_spark_server

__all__ = [
    "bucket",
    "jvm",
    "patient",
    "running_jvm",
    "running_s3",
    "running_sail",
    "running_seaweedfs",
    "s3",
    "sail",
    "sail_by_seaweedfs",
    "seaweedfs",
    "spark_home",
    "start_jvm",
]

# A handler that a test's command made has the stream of that test, which is closed when later tests log.
logging.raiseExceptions = False
os.environ.setdefault(JVM_OPTIONS, options_of_young_jvms())

HERE = Path(__file__).parent
GUARD = pytest.StashKey[subprocess.Popen[bytes]]()
#: Whether a worker crashed.
IS_CUT = pytest.StashKey[bool]()

#: Folders in the order in which their tests start. The most expensive start first, so that no worker ends alone.
FIRST = ("test_docs", "cli", "features", "spark", "bindings", "data", "simulation")
#: The folder whose files each deploy a Dagster of their own.
DEPLOYMENTS = "e2e"
#: Folders whose tests prove the rules. They need neither Spark nor processes, but for the tests marked `long`.
RULES = ("model", "store", "engine")
#: The folders of `make test`. It reads no others: the collection of all would take a tenth of its time.
OF_MISSION = (*RULES, DEPLOYMENTS)
#: Hypothesis makes a failing example smaller for up to 300 s before it reports it.
SHRINKING_SECONDS = 900


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--database", choices=["postgres"], help="run the tests of model, engine and store on this one alone"
    )
    parser.addoption("--all", action="store_true", help="also the tests marked `extended`")
    parser.addoption(
        "--mission",
        action=BooleanOptionalAction,
        help="only what `make test` runs: the rules, and one real proof of each",
    )
    parser.addoption("--record", metavar="FILE", help="append a line of JSON for each test that has ended")


def pytest_configure(config: pytest.Config) -> None:
    """A shell lets its background jobs ignore Ctrl-C, and so would every process that a test starts and interrupts."""
    choose_examples()
    config.pluginmanager.register(reporting)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """A worker is started without the arguments of the run: the controller passes the answer on."""
    node.workerinput["names_tests"] = _names_tests(node.config)


def _names_tests(config: pytest.Config) -> bool:
    """A file or test given by name runs completely."""
    from_controller: dict[str, bool] | None = getattr(config, "workerinput", None)
    if from_controller is not None:
        return from_controller["names_tests"]
    return config.args_source is pytest.Config.ArgsSource.ARGS


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if not config.getoption("--mission") or _names_tests(config):
        return None
    if collection_path.parent != HERE or collection_path.name in OF_MISSION:
        return None
    if collection_path.is_dir() and any(collection_path.rglob("test_*.py")):
        reporting.note_left_out_folder(f"tests/{collection_path.name}")
    elif collection_path.name.startswith("test_"):
        reporting.note_left_out_folder("tests/*.py")
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Tests of one file that share a fixture run on one worker; every other test runs on any."""
    for mark in item.iter_markers("long"):
        if not (len(mark.args) == 1 and isinstance(mark.args[0], str)):
            raise pytest.UsageError(
                f"{item.nodeid}: long(why) says what only a process, a server or Spark can show here"
            )
    if "browser" in getattr(item, "fixturenames", ()):
        item.add_marker("browser")
    if isinstance(item, pytest.Function) and is_hypothesis_test(item.obj):
        item.add_marker(pytest.mark.timeout(SHRINKING_SECONDS))
    if _shares_a_fixture(item):
        item.add_marker(pytest.mark.xdist_group(item.path.relative_to(HERE).as_posix()))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # The core is tested without a feature, too: in a tree without its folder, the tests that use it are left out.
    known = {feature.name for feature in built_in()}
    _leave_out(config, items, lambda item: any(mark.args[0] not in known for mark in item.iter_markers("feature")))
    if not _names_tests(config):
        mission = config.getoption("--mission")
        if mission is not None:
            left_out = _leave_out(config, items, lambda item: _is_of_mission(item) is not mission)
            reporting.note_left_out(left_out if mission else [])
        if not config.getoption("--all"):
            left_out = _leave_out(config, items, lambda item: item.get_closest_marker("extended") is not None)
            reporting.note_left_out(left_out)
    items[:] = _in_order(items)


def _leave_out(
    config: pytest.Config, items: list[pytest.Item], is_left_out: Callable[[pytest.Item], bool]
) -> list[pytest.Item]:
    left_out = [item for item in items if is_left_out(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        absent = set(left_out)
        items[:] = [item for item in items if item not in absent]
    return left_out


def _is_of_mission(item: pytest.Item) -> bool:
    """Each rule on SQLite, and the tests marked `mission`: one real proof of each thing that the package is for."""
    if item.get_closest_marker("mission"):
        return True
    if _folder(item) not in RULES or item.get_closest_marker("long") or item.get_closest_marker("extended"):
        return False
    arguments = getattr(item, "callspec", None)
    return arguments is None or arguments.params.get("database") != "postgres"


def pytest_collection_finish() -> None:
    """Tests and modules stay until the end, so that no collection need look at them."""
    gc.collect()
    gc.freeze()


def _in_order(items: list[pytest.Item]) -> list[pytest.Item]:
    """The expensive folders first, and the files of `e2e` spread over them.

    A deployment of Dagster uses the processor while its test waits, so three at the same time slow each other down.
    """
    # A stable sort: within a folder the order stays as it was shuffled.
    others = sorted((item for item in items if _folder(item) != DEPLOYMENTS), key=_place)
    n_expensive = sum(_folder(item) in FIRST for item in others)
    deployments: dict[Path, list[pytest.Item]] = {}
    for item in items:
        if _folder(item) == DEPLOYMENTS:
            deployments.setdefault(item.path, []).append(item)
    step = n_expensive // (len(deployments) + 1)
    for place, group in reversed(list(enumerate(sorted(deployments.values(), key=len, reverse=True)))):
        others[place * step : place * step] = group
    return others


def pytest_sessionstart(session: pytest.Session) -> None:
    """A run that is killed leaves no process in the folders of its tests; a run that ends is to leave none by itself."""
    if not hasattr(session.config, "workerinput"):
        factory: pytest.TempPathFactory = session.config._tmp_path_factory  # type: ignore[attr-defined]
        session.config.stash[GUARD] = guard(factory.getbasetemp())


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object | None) -> None:
    """A worker that crashed has ended none of its fixtures."""
    if error is not None:
        node.config.stash[IS_CUT] = True


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if not hasattr(session.config, "workerinput"):
        stop_spark_server(session.config)
        # Ctrl-C kills the workers. Then the guard does its work when this process has ended.
        is_cut = session.config.stash.get(IS_CUT, False) or exitstatus == pytest.ExitCode.INTERRUPTED
        if (started := session.config.stash.get(GUARD, None)) is not None and not is_cut:
            dismiss(started)


def _shares_a_fixture(item: pytest.Item) -> bool:
    definitions = getattr(item, "_fixtureinfo", None)
    if definitions is None:
        return False
    return any(fixture[-1].scope in ("module", "class") for fixture in definitions.name2fixturedefs.values())


def _place(item: pytest.Item) -> int:
    folder = _folder(item)
    return FIRST.index(folder) if folder in FIRST else len(FIRST)


def _folder(item: pytest.Item) -> str:
    return item.path.relative_to(HERE).with_suffix("").parts[0]
