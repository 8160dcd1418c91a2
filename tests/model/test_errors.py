"""Messages are made in one place, from the facts of an error."""

from databuild_dagster.model.errors import InvalidRequest


def test_a_message_quotes_the_beginning_of_a_long_value_and_keeps_the_fact():
    typed = "x" * 10_000

    refused = InvalidRequest(what="the source", value=typed, why="it is too long")

    assert len(str(refused)) < 1_500
    assert refused.message.endswith("x…', which is not possible: it is too long.")
    assert refused.facts["value"] == typed
