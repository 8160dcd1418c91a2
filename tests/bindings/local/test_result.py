"""What one screen shows of a result."""

from databuild_dagster.bindings.local.result import MAX_CELL, MAX_ROWS, Answer, Screen


def test_a_result_fits_one_screen() -> None:
    answer = Answer(None, Screen("Head.", ("ref", "why"), [("a", "x" * 500)] * 100, ["A note."]))

    head, titles, *rows, more, note = repr(answer).splitlines()

    assert (head, titles, note) == ("Head.", "ref  why", "A note.")
    assert rows == [f"a    {'x' * MAX_CELL}"] * MAX_ROWS
    assert more == "and 80 more rows"


def test_a_notebook_shows_no_tag_that_a_value_brings() -> None:
    answer = Answer(None, Screen("<i>", ("<b>",), [("<script>",)], ["<u>"]))

    shown = answer._repr_html_()

    assert not any(tag in shown for tag in ("<i>", "<b>", "<script>", "<u>"))
    assert "<td>&lt;script&gt;</td>" in shown
