"""What can go wrong, told by what the caller should do about it.

A class's docstring is its message, with the facts as fields; `hint` says what to do. `Refused` is shown to the
user, `Conflict` means read again and retry, `NotFound` means there is nothing, `IllegalMove` is our own bug.
"""

from __future__ import annotations

import inspect
from typing import Any, ClassVar


class DatabuildError(Exception):
    """Something went wrong in databuild."""

    #: What the user can do about it; fields of the facts may stand in it.
    hint: ClassVar[str] = ""

    def __init__(self, **facts: Any) -> None:
        self.facts = facts
        template = " ".join(inspect.cleandoc(type(self).__doc__ or "").split())
        self.message = template.format(**facts)
        self.advice = type(self).hint.format(**facts)
        super().__init__(f"{self.message} {self.advice}".strip())

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self.facts)


def _restore(cls: type[DatabuildError], facts: dict[str, Any]) -> DatabuildError:
    return cls(**facts)


class Refused(DatabuildError):
    """The command was refused: {why}"""


class Conflict(DatabuildError):
    """Another writer changed {entity} first."""


class NotFound(DatabuildError):
    """There is no {kind} {name!r}."""

    hint = "Check the spelling."


class IllegalMove(DatabuildError):
    """Impossible at seq {seq}: {entity} in state {state} cannot take {on}: {why}"""

    hint = "This is a bug or a damaged log: run `databuild log check` and report what it prints."


class InvalidRef(Refused):
    """{text!r} is not a partition ref: {why}."""

    hint = "Write path/of/asset@partition_key, or path/of/asset for an unpartitioned asset."


class DuplicateRef(Refused):
    """{ref} is named twice in one request."""

    hint = "Name each ref once."


class UnknownAsset(Refused):
    """No code location has registered an asset {asset!r}."""

    hint = "{suggestion}"


class NoSuchDataset(UnknownAsset):
    """No dataset named {asset!r} is registered, so it has nothing to taint."""


class UnknownPartition(Refused):
    """{ref} cannot be built: {why}"""

    hint = "`databuild partitions {asset}` lists the partitions that exist."


class InvalidRequest(Refused):
    """{what} is {value!r}, which is not possible: {why}."""


class AssetTaken(Refused):
    """Code location {location!r} declares {assets}, which code location {owner!r} has registered."""

    hint = (
        "Keep it in one of the two: when {owner!r} has loaded without it, {location!r} gets it. If {owner!r} is gone "
        "for good: `databuild location forget {owner}`."
    )


class LocationTaken(Refused):
    """Code location {location!r} has registered {assets}, and what calls itself so now declares none of them."""

    hint = (
        "If these are two code locations, name each: build_definitions(…, location='…'). If everything was renamed: "
        "`databuild location forget {location}`."
    )


class CanonicalMoved(Refused):
    """{ref} has got another instance since it was looked at."""

    hint = "Nothing was recorded; look again and repeat the command."


class AlreadyStarted(Refused):
    """Launch {launch_id} was started already, by Dagster run {dagster_run_id}."""

    hint = "Nothing to do: that run builds what this one would have."


class StaleJobRun(Refused):
    """Job run {job_run_id} is {state}, so what it reports is not taken."""

    hint = "Its data stays unread; the ref is built again when it is wanted."


class BeingBuilt(Refused):
    """{ref} is being built by job run {job_run}."""

    hint = "Wait until it has ended, or cancel it with `databuild job-run cancel {job_run}`."


class NothingToTaint(Refused):
    """{ref} has nothing to taint: it is {state}."""

    hint = "It will be built when it is wanted: `databuild want create {ref}`."


class CannotRevert(Refused):
    """{ref} cannot go back to instance {uuid}: {why}."""

    hint = "See `databuild history {ref}`."


class NothingToRetry(Refused):
    """{ref} is {state}, so there is nothing to retry."""

    hint = "Only what failed, or what needs something that failed, is opened by a retry; see `databuild show {ref}`."


class NothingToUntaint(Refused):
    """Taint {taint_id} holds no canonical instance back: {why}."""

    hint = "`databuild history REF` shows every instance of a ref."


class WantEnded(Refused):
    """Want {want_id} is {state} already."""

    hint = "Nothing to cancel; `databuild want list` shows what is open."


class JobRunEnded(Refused):
    """Job run {job_run_id} is {state} already."""

    hint = "Nothing to cancel; `databuild job-run list` shows what is going on."


class InstanceExists(Refused):
    """Instance {uuid} of {ref} exists already."""

    hint = "Job run ids must be fresh UUIDv7 strings; this one was used before."


class PlanTooLarge(Refused):
    """The plan for {wanted} refs is too large: with their inputs they come to more than {most:,} {what}."""

    hint = "Ask for fewer partitions at once."


class CyclicInputs(Refused):
    """The declared inputs lead back to where they began: {cycle}."""

    hint = "Take one of these inputs out of its asset; what needs itself can never be built."
