"""Refs are texts that come apart and together again; an instance's identity follows from its job run and ref (rules 2)."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from databuild_dagster.engine.holders import new_id
from databuild_dagster.model.errors import InvalidRef, InvalidRequest
from databuild_dagster.model.refs import (
    MAX_REF_BYTES,
    PartitionRef,
    asset_of,
    checked_job_run_id,
    derive_partition_uuid,
    make_ref,
    parse_ref,
    partition_key_of,
)

DATABASES = ()

characters = st.characters(exclude_categories=("Cc", "Cs"))
segments = st.text(characters.filter(lambda character: character not in "/@"), min_size=1, max_size=12)
assets = st.lists(segments, min_size=1, max_size=4).map("/".join)
partition_keys = st.none() | st.text(characters, min_size=1, max_size=30)


@given(assets, partition_keys)
def test_a_ref_is_the_same_after_being_written_and_parsed(asset, partition_key):
    """Rule 2.1"""
    ref = PartitionRef(asset, partition_key)

    again = PartitionRef.parse(str(ref))

    assert again == ref
    assert parse_ref(ref) == parse_ref(str(ref)) == make_ref(asset, partition_key) == str(ref)
    assert (asset_of(parse_ref(ref)), partition_key_of(parse_ref(ref))) == (asset, partition_key)


@given(st.text(max_size=40))
def test_an_accepted_text_is_written_as_it_was(text):
    """Rule 2.1: parsing is strict, so nothing is quietly normalized."""
    try:
        ref = PartitionRef.parse(text)
    except InvalidRef:
        return

    assert str(ref) == text


#: UUIDv7, as all of them.
A_JOB_RUN_ID = "01a1ff5b-2dd5-7b71-b329-baf32ce41f4f"


@pytest.mark.parametrize(
    ("text", "asset", "partition_key"),
    [
        ("airlines", "airlines", None),
        ("raw/flights@2013-01-01", "raw/flights", "2013-01-01"),
        ("mail@ada@example.org", "mail", "ada@example.org"),
        ("logs@a/b|c:d e", "logs", "a/b|c:d e"),
        ("städte@Köln", "städte", "Köln"),
    ],
)
def test_the_first_at_sign_separates_and_keys_may_hold_nearly_anything(text, asset, partition_key):
    """Rule 2.1"""
    assert PartitionRef.parse(text) == PartitionRef(asset, partition_key)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"),
        ("@2013-01-01", "empty"),
        ("flights@", "empty"),
        ("raw//flights", "empty"),
        ("/flights", "empty"),
        ("flights/@1", "empty"),
        ("fli\nghts", "control character"),
        ("flights@1\x00", "control character"),
        ("flights@\x7f", "control character"),
        ("flights@\x85", "control character"),
        ("flights@\ud800", "surrogate"),
        ("a" * (MAX_REF_BYTES + 1), "1025 bytes"),
        ("ä" * 600, "1200 bytes"),
    ],
)
def test_a_malformed_ref_is_refused_with_the_reason(text, why):
    """Rule 2.1"""
    asset, at, partition_key = text.partition("@")

    for edge in (PartitionRef.parse, parse_ref, lambda _: make_ref(asset, partition_key if at else None)):
        with pytest.raises(InvalidRef, match=why):
            edge(text)


def test_the_path_of_a_ref_is_the_asset_key_that_dagster_knows():
    """Rule 2.1"""
    assert PartitionRef.parse("raw/flights@1/2").path == ("raw", "flights")


@pytest.mark.parametrize(
    ("job_run_id", "ref", "expected"),
    [
        ("job-run-1", "data/beta", "5e0002a1-0f3d-bd95-db63-b1ac4bedec0f"),
        ("job-run-2", "data/beta", "579bd65c-4ec2-280d-148b-69c8ddecd1b2"),
        ("job-run-1", "data/alpha", "517a20e6-092e-006b-d51b-320228a4682a"),
        ("", "", "e3b0c442-98fc-1c14-9afb-f4c8996fb924"),
        ("job-run-1d", "ata/beta", "5e0002a1-0f3d-bd95-db63-b1ac4bedec0f"),
    ],
)
def test_instance_uuids_are_the_seeds_vectors(job_run_id, ref, expected):
    """Rule 2.2, the collision without a separator included."""
    assert derive_partition_uuid(job_run_id, ref) == expected


@pytest.mark.parametrize(
    "job_run_id",
    [
        "job-run-1",
        "",
        str(uuid.UUID(int=0)),
        "6cc02fa2-5476-4d86-ad65-4f4410912492",
        A_JOB_RUN_ID.upper(),
        A_JOB_RUN_ID.replace("-", ""),
        "{" + A_JOB_RUN_ID + "}",
        "urn:uuid:" + A_JOB_RUN_ID,
        A_JOB_RUN_ID + " ",
    ],
)
def test_only_36_characters_of_uuid7_are_a_job_run_id(job_run_id):
    """Rule 2.2: with ids of any length two builds could get one identity."""
    with pytest.raises(InvalidRequest, match="UUIDv7"):
        checked_job_run_id(job_run_id)


def test_fresh_ids_are_uuid7_and_never_the_same():
    """Rule 2.2"""
    ids = [new_id() for _ in range(1000)]

    assert len(set(ids)) == 1000
    assert all(checked_job_run_id(fresh) == fresh for fresh in ids)
    assert {uuid.UUID(fresh).variant for fresh in ids} == {uuid.RFC_4122}
