"""The page on performance is what the benches have recorded."""

from bench import report
from bench.peers.__main__ import PEERS
from bench.results import FOLDER


def test_the_page_on_performance_is_what_the_benches_recorded() -> None:
    assert report.PATH.read_text() == report.page(), "python -m bench.report"


def test_each_recorded_table_has_its_command_and_whole_rows() -> None:
    for path in FOLDER.glob("*.json"):
        result = report.read(path.stem)

        assert result is not None
        assert result["name"] == path.stem
        assert result["command"].startswith(("python -m bench", "databuild ", "pytest "))
        assert {len(row) for row in result["rows"]} == {len(result["columns"])}, path.name


def test_each_peer_has_its_place_on_the_page() -> None:
    assert set(PEERS) <= set(report.PEERS)
