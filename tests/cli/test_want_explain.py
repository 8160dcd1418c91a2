"""`databuild explain`: why something is, or is not, being built, back to the first cause (rules 15)."""

from tests.support.project import Project

DAYS = ["orders@2024-01-29", "orders@2024-01-30", "orders@2024-01-31"]
JANUARY = "revenue@2024-01-01"
UNWANTED = "never built; no open want names it"


def test_a_ref_without_a_want_is_explained(known_project: Project) -> None:
    assert known_project.ask("explain", JANUARY) == {
        "ref": JANUARY,
        "state": None,
        "causes": [{"ref": JANUARY, "why": f"{UNWANTED}; `databuild want create {JANUARY}` records one", "depth": 0}],
    }


def test_a_wait_is_followed_to_the_failure_behind_it(project: Project) -> None:
    project.call("tick")
    project.fail("2024-01-30")

    built = project.call("build", JANUARY, "--json").json
    answer = project.ask("explain", JANUARY)

    failed = next(job_run for job_run in project.ask("job-run", "list") if job_run["state"] == "Failed")
    assert answer["state"] == "UpstreamFailed"
    assert answer["causes"][0] == {"ref": JANUARY, "why": f"needs {DAYS[1]}, which failed", "depth": 0}
    assert answer["causes"][1]["ref"] == DAYS[1]
    assert answer["causes"][1]["why"].startswith(f"failed in job run {failed['id']} with: ")
    assert "no orders on 2024-01-30" in answer["causes"][1]["why"]

    of_request = project.call("explain", built["request_id"])

    assert of_request.code == 0
    lines = of_request.out.splitlines()
    assert lines[0] == f"{built['request_id']}  UpstreamFailed"
    assert lines[2] == f"  {JANUARY}: needs {DAYS[1]}, which failed"
    assert lines[3].startswith(f"    {DAYS[1]}: failed in job run")


def test_one_can_look_back_at_why_it_was_not_built(project: Project) -> None:
    """Rule 3.2"""
    project.call("tick")
    began = project.n_events()
    (want,) = project.ask("want", "create", DAYS[0])
    then = project.n_events()
    before = project.ask("explain", want["id"])
    assert project.call("want", "cancel", want["id"]).code == 0

    assert project.ask("explain", want["id"])["state"] == "Canceled"
    # The log does not have the ticks, so looking back leaves out that no orchestrator runs.
    looked_back = project.ask("explain", want["id"], "--as-of", str(then))
    (cause,) = looked_back["causes"]
    assert cause["why"] == f"{before['causes'][0]['why']}: the next tick launches it"
    assert looked_back == {**before, "causes": [cause]}
    answer = project.call("explain", DAYS[0], "--as-of", str(then)).out.splitlines()
    assert answer[0] == f"{DAYS[0]}  missing as of seq {then}"
    assert answer[1].endswith(": the next tick launches it")
    assert project.ask("explain", DAYS[0], "--as-of", str(began))["causes"][0]["why"].startswith(UNWANTED)
    refused = project.call("explain", want["id"], "--as-of", str(began))
    assert (refused.code, "Nothing had been recorded of" in refused.err) == (2, True)
