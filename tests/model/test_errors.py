"""Messages are made in one place, from the facts of an error."""

import sys

import pytest

from databuild_dagster.model.errors import DatabuildError, InvalidRequest, NotFound, UnknownAsset


def test_a_message_quotes_the_beginning_of_a_long_value_and_keeps_the_fact():
    typed = "x" * 10_000

    refused = InvalidRequest(what="the source", value=typed, why="it is too long")

    assert len(str(refused)) < 1_500
    assert refused.message.endswith("x…', which is not possible: it is too long.")
    assert refused.facts["value"] == typed


class Stale(DatabuildError):
    """{ref} is stale."""

    hint = "`databuild build {ref}` builds it."


def test_a_command_to_copy_has_its_values_in_full():
    ref = "sales@" + "x" * 2_000

    stale = Stale(ref=ref)

    assert stale.advice == f"`databuild build {ref}` builds it."
    assert len(stale.message) < 1_500


def test_a_ref_in_place_of_an_asset_is_answered_with_its_asset():
    assert UnknownAsset(asset="sales@2024-01-01", names=["sales", "shops"]).advice == "Did you mean sales?"


def test_a_name_that_is_like_no_other_is_answered_with_the_command_that_lists_them():
    assert NotFound(kind="want or request", name="x").advice == "`databuild want list --all` lists what exists."


class LibraryMissing(DatabuildError):
    """A library is not installed here."""

    hint = "pip install 'databuild-dagster[{extra}]'"


@pytest.mark.parametrize("installed", ["databuild-dagster", "databuild-dagster-core"])
def test_a_hint_names_the_distribution_that_is_installed(installed, tmp_path, monkeypatch):
    """The plain one would bring Spark into an environment with a client of Spark, and a checkout has no core."""
    described = tmp_path / f"{installed.replace('-', '_')}-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {installed}\nVersion: 1.0\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])

    assert LibraryMissing(extra="s3").advice == f"pip install '{installed}[s3]'"
