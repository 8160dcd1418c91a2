"""Names of partitions, and the identity of their builds (rules 2).

A ref is text in events, rows and plans of 100,000 refs: `Ref` is that text as a type, and costs nothing when the program
runs. Text becomes a `Ref` in `parse_ref` and `make_ref` alone; what the database and our own manifests hold was parsed
before it was written (docs/decisions/wants.md#decision-0030). `PartitionRef` is the same name taken apart, for users. An instance
uuid is derived from the job run and the ref, so that a replay of the log makes the same identities and no event has to
carry them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import NewType

from databuild_dagster.model.errors import InvalidRef, InvalidRequest

#: The text of a well-formed ref. mypy accepts no other text in its place.
Ref = NewType("Ref", str)

MAX_REF_BYTES = 1024
#: The column of a batched frame with the output's partition key.
PARTITION_KEY = "partition_key"

_UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True, order=True)
class PartitionRef:
    """A partition of an asset: `path/of/asset@partition_key`, or `path/of/asset` (rule 2.1).

    Raises `InvalidRef` for empty segments, control characters, an `@` in the asset, or more than 1,024 bytes.
    """

    asset: str
    partition_key: str | None = None

    def __post_init__(self) -> None:
        if why := _why_not_a_ref(self.asset, self.partition_key):
            raise InvalidRef(text=_text(self.asset, self.partition_key), why=why)

    @classmethod
    def parse(cls, text: str) -> PartitionRef:
        """Take the text form apart at its first `@`. Raises `InvalidRef`."""
        asset, at, partition_key = text.partition("@")
        return cls(asset, partition_key if at else None)

    @property
    def path(self) -> tuple[str, ...]:
        """The asset key's segments, as Dagster has them."""
        return tuple(self.asset.split("/"))

    def __str__(self) -> str:
        return _text(self.asset, self.partition_key)


#: A ref as users may pass it.
AnyRef = PartitionRef | str


def parse_ref(ref: AnyRef) -> Ref:
    """The ref that a user, a command line or Dagster names. Raises `InvalidRef`."""
    if isinstance(ref, PartitionRef):
        return Ref(str(ref))
    asset, at, partition_key = ref.partition("@")
    return make_ref(asset, partition_key if at else None)


def make_ref(asset: str, partition_key: str | None) -> Ref:
    """The ref of a partition of an asset; of an unpartitioned asset for None. Raises `InvalidRef`."""
    if why := _why_not_a_ref(asset, partition_key):
        raise InvalidRef(text=_text(asset, partition_key), why=why)
    return Ref(_text(asset, partition_key))


def ref_or_none(asset: str, partition_key: str | None) -> Ref | None:
    """The same; None for a name that no ref can have, which Dagster may have all the same."""
    return None if _why_not_a_ref(asset, partition_key) else Ref(_text(asset, partition_key))


def _text(asset: str, partition_key: str | None) -> str:
    return asset if partition_key is None else f"{asset}@{partition_key}"


def _why_not_a_ref(asset: str, partition_key: str | None) -> str | None:
    text = _text(asset, partition_key)
    if "@" in asset:
        return "an asset key may not hold '@'"
    if not all(asset.split("/")):
        return "a segment of the asset key is empty"
    if partition_key == "":
        return "the partition key after '@' is empty"
    if not text.isprintable() and any(_is_control(character) for character in text):
        return "it holds a control character"
    try:
        size_bytes = len(text.encode())
    except UnicodeEncodeError:
        return "it holds half of a surrogate pair"
    if size_bytes > MAX_REF_BYTES:
        return f"it is {size_bytes} bytes long, more than {MAX_REF_BYTES}"
    return None


def _is_control(character: str) -> bool:
    return ord(character) < 0x20 or 0x7F <= ord(character) < 0xA0


def asset_of(ref: Ref) -> str:
    """The asset of a ref."""
    return ref.partition("@")[0]


def partition_key_of(ref: Ref) -> str | None:
    """The partition key of a ref, None for an unpartitioned asset."""
    _, at, partition_key = ref.partition("@")
    return partition_key if at else None


def derive_partition_uuid(job_run_id: str, ref: PartitionRef | str) -> str:
    """The identity of what a job run builds for a ref (rule 2.2): the first 16 bytes of sha256 over both texts."""
    text = sha256(job_run_id.encode() + str(ref).encode()).hexdigest()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:32]}"


def checked_job_run_id(job_run_id: str) -> str:
    """Only full UUIDs pass, because the hash has no separator between the id and the ref (rule 2.2)."""
    if not _UUID7.fullmatch(job_run_id):
        raise InvalidRequest(what="job run id", value=job_run_id, why="it must be a 36-character UUIDv7 string")
    return job_run_id
