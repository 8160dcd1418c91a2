"""`ledger metrics`: what became of job runs and what was spared, for people and for Prometheus (rule 8.5)."""

import re
import signal
import sys
import urllib.request

import pytest

from tests.support.free_port import free_port
from tests.support.project import MAX_SECONDS, Project, wait_for_line

DAY, NEXT_DAY = "orders@2024-01-29", "orders@2024-01-30"


def test_metrics_say_what_went_well_and_what_was_spared(project: Project) -> None:
    """Rule 8.5"""
    assert project.ask("ledger", "metrics") == {}
    project.fail("2024-01-30")
    assert project.call("build", DAY, NEXT_DAY).code == 1
    project.ask("want", "create", DAY)
    project.build(DAY)

    (job,) = project.ask("ledger", "metrics").items()
    assert job[0] == "orders"
    assert (job[1]["job_runs"], job[1]["avoided"]) == ({"Failed": 1, "Succeeded": 1, "Skipped": 2}, 2)
    assert job[1]["seconds_saved"] == 2 * job[1]["median_seconds"] > 0
    table = project.call("ledger", "metrics", "--since", "1h", "--job", "orders").out
    assert re.search(r"orders +75\.0% +3 +1 +0 +0 +0 +2 ", table), table
    assert project.ask("ledger", "metrics", "--until", "1h") == {}
    assert project.call("ledger", "metrics", "--since", "1h", "--prometheus").code == 2
    scraped = project.call("ledger", "metrics", "--prometheus").out
    assert 'databuild_job_success_ratio{job="orders"} 0.75' in scraped
    # The median moves, so this may fall, which a counter never does.
    assert "# TYPE databuild_seconds_saved gauge" in scraped
    assert 'databuild_builds_avoided{job="orders"} 2.0' in scraped


@pytest.mark.parametrize("how", [["--prometheus"], ["--serve", "0"]], ids=["print", "serve"])
def test_metrics_for_prometheus_name_the_extra_that_they_need(
    known_project: Project, monkeypatch: pytest.MonkeyPatch, how: list[str]
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    # An earlier command of this process may have imported it.
    monkeypatch.delitem(sys.modules, "databuild_dagster.features.notices.commands.prometheus", raising=False)
    monkeypatch.delattr("databuild_dagster.features.notices.commands.prometheus", raising=False)

    done = known_project.call("ledger", "metrics", *how)

    assert (done.code, done.out) == (2, "")
    assert done.err.strip().endswith(
        "Metrics for Prometheus need prometheus-client, which is not installed here. "
        "Install it: pip install 'databuild-dagster-core[metrics]'. Without --prometheus and --serve it is not needed."
    )


@pytest.mark.long("Ctrl-C reaches a process")
def test_prometheus_is_answered_until_ctrl_c(project: Project) -> None:
    project.build(DAY)
    serving = project.start("ledger", "metrics", "--serve", "0")
    line = wait_for_line(serving, "http")[-1]
    url = re.search(r"http://127\.0\.0\.1:\d+/metrics", line)
    assert url is not None, line

    with urllib.request.urlopen(url[0], timeout=250) as answer:
        text = answer.read().decode()
    serving.send_signal(signal.SIGINT)
    _, err = serving.communicate(timeout=MAX_SECONDS)

    assert 'databuild_job_runs{job="orders",state="Succeeded"} 1.0' in text
    assert 'databuild_refs{dataset="orders",state="Live"} 1.0' in text
    assert "databuild_open_wants 0.0" in text
    assert serving.returncode == 130, err


def test_prometheus_is_answered_where_it_was_said(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another machine scrapes it; without `--host` only this one could."""
    port = free_port()
    scraped = []

    class Waiting:
        def wait(self) -> None:
            # Any address of the loopback network but the one that is listened to by default.
            with urllib.request.urlopen(f"http://127.0.0.2:{port}/metrics", timeout=250) as answer:
                scraped.append(answer.read().decode())

    monkeypatch.setattr("databuild_dagster.features.notices.commands.prometheus.Event", Waiting)

    served = project.call("ledger", "metrics", "--serve", str(port), "--host", "0.0.0.0")

    assert f"http://0.0.0.0:{port}/metrics" in served.err
    assert "databuild_open_wants 0.0" in scraped[0]


def test_a_host_that_cannot_be_listened_on_is_refused(project: Project) -> None:
    alone = project.call("ledger", "metrics", "--host", "0.0.0.0")
    elsewhere = project.call("ledger", "metrics", "--serve", "0", "--host", "192.0.2.1")
    unknown = project.call("ledger", "metrics", "--serve", "0", "--host", "no-such-host.invalid")
    empty = project.call("ledger", "metrics", "--serve", "0", "--host", "")

    assert (alone.code, "give --serve too" in alone.err) == (2, True)
    assert (elsewhere.code, "Port 0 of 192.0.2.1 cannot be had" in elsewhere.err) == (2, True)
    assert (unknown.code, "Port 0 of no-such-host.invalid cannot be had" in unknown.err) == (2, True)
    assert (empty.code, "--host" in empty.err) == (2, True)


def test_prometheus_and_json_exclude_each_other(known_project: Project) -> None:
    assert known_project.call("ledger", "metrics", "--prometheus", "--json").code == 2
