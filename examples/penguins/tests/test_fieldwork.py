from pathlib import Path

import pandas as pd

from penguins.fieldwork import lab_results_of, send


def test_a_day_on_an_island_is_one_file(tmp_path: Path) -> None:
    sent = send("2008", ["Torgersen"], tmp_path)

    assert [path.name for path in sent[:2]] == ["2008-11-02_Torgersen.parquet", "2008-11-06_Torgersen.parquet"]
    assert sorted(tmp_path.iterdir()) == sent, "nothing unfinished is left"
    assert sum(len(pd.read_parquet(path)) for path in sent) == 16


def test_the_laboratory_has_each_sample_once() -> None:
    assert lab_results_of("2009")["sample"].is_unique
