"""`databuild plan --if-tainted` and its sisters: what follows from a supposition, with nothing recorded (rules 8.10, 15)."""

from tests.support.project import Project

DAYS = ["orders@2024-01-29", "orders@2024-01-30", "orders@2024-01-31"]
JANUARY = "revenue@2024-01-01"


def test_the_three_questions_are_answered_and_nothing_is_recorded(project: Project) -> None:
    project.call("admin", "tick")
    project.build(JANUARY)
    with project.recording_nothing():
        tainted = project.ask("plan", "--if-tainted", DAYS[0])
        lines = project.call("plan", "--if-tainted", DAYS[0]).out.splitlines()
        code = project.ask("plan", "--if-new-code", "orders")
        missing = project.ask("plan", "--if-missing", "orders@2024-02-01..2024-02-02")
        words = project.call("plan", "--if-missing", "orders@2024-02-01").out.splitlines()

    assert {change["ref"]: change["effect"] for change in tainted["changes"]} == {DAYS[0]: "build", JANUARY: "stale"}
    assert tainted["seconds"] > 0
    assert lines[0] == f"If {DAYS[0]} is tainted:"
    assert lines[1] == f"  build {DAYS[0]}: tainted, as supposed, and an open want asks for it"
    assert lines[2] == f"  stale {JANUARY}: stays live; it was built from {DAYS[0]}, which is replaced or tainted"
    assert lines[3].startswith("2 refs: 1 build, 1 stale; 1 launch, about ")
    assert lines[3].endswith(" one after another. 1 want would open again. Nothing was done.")
    assert code["counts"] == {"build": 3, "stale": 1}
    assert (code["what"], code["refs"]) == ("code", DAYS)
    assert missing["counts"] == {"blocked": 2, "wait": 1}
    assert words[0] == "If orders@2024-02-01 never arrives:"
    assert words[2] == "  wait revenue@2024-02-01: needs orders@2024-02-01; no open want asks for it"


def test_no_code_is_loaded_for_a_what_if(project: Project) -> None:
    project.call("admin", "tick")
    project.define("raise SystemExit('loaded')")

    assert project.call("plan", "--if-missing", DAYS[0]).code == 0
