"""The errors of the model, by what their caller does.

The docstring of a class is its message, with the facts as fields; `hint` says what to do. The caller shows `Refused` to the
user, reads again and retries after `Conflict`, has nothing to look at after `NotFound`; `IllegalMove` is our own bug.
"""

import difflib
import inspect
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, ClassVar

from databuild_dagster.model.redaction import without_secrets
from databuild_dagster.model.wording import (
    MAX_DIGITS,
    MAX_VALUE,
    few_of,
    filled,
    number_in_words,
    numbers_cut,
    shortened,
)

# The commands that hints name. The model knows the command line by these lines only.
_BUILD = "`databuild build`"
_CANCEL_JOB_RUN = "`databuild want cancel --job-runs {job_run}`"
_CANCEL_OPERATION = "`databuild operation cancel {id}`"
_CHECK = "`databuild log check`"
_FORGET_LOCATION = "`databuild status --forget {location}`"
_FORGET_OWNER = "`databuild status --forget {owner}`"
_HISTORY = "`databuild history {ref}`"
_HISTORY_OF_ANY = "`databuild history REF`"
_JOB_RUNS = "`databuild history --job-runs`"
_OPERATIONS = "`databuild operation list`"
_REBUILD = "`databuild log rebuild`"
_PARTITIONS = "`databuild partitions {asset}`"
_RESUME = "`databuild resume {ref}`"
_RESUME_ASSET = "`databuild resume {asset}`"
_SHOW = "`databuild show {ref}`"
_STATUS = "`databuild status`"
_UNTAINT = "`databuild untaint TAINT`"
_WANT = "`databuild want create {ref}`"
_WANTS = "`databuild want list`"
#: The distribution whose extras hints name.
_PLAIN = "databuild-dagster"
_LOADING = f"code location that defines it: {_BUILD} registers what it loads."
#: By kind of what is not found, the command that lists what there is.
_LISTS = {
    "code location with registered assets": "`databuild status --locations`",
    "instance": _HISTORY_OF_ANY,
    "job run": _JOB_RUNS,
    "launch": _JOB_RUNS,
    "operation": _OPERATIONS,
    "request": "`databuild history --requests`",
    "taint": "`databuild taint --list`",
    "want": _WANTS,
    "want or request": "`databuild want list --all`",
}


class DatabuildError(Exception):
    """Something went wrong in databuild."""

    #: Advice to the user, with fields of the facts.
    hint: ClassVar[str] = ""

    def __init__(self, **facts: Any) -> None:
        self.facts = facts
        template = " ".join(inspect.cleandoc(type(self).__doc__ or "").split())
        shown = {name: _shown(fact) for name, fact in facts.items()}
        self.message = without_secrets(filled(template, shown))
        # A command to copy has its values in full.
        self.advice = without_secrets(_of_installed(filled(type(self).hint, facts)))
        super().__init__(f"{self.message} {self.advice}".strip())

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), **self.facts), ()


def _of_installed(advice: str) -> str:
    """Advice that installs an extra of the core where databuild-dagster, which brings Spark, is not installed."""
    if f"{_PLAIN}[" not in advice:
        return advice
    from importlib.metadata import distributions

    return advice if any(distributions(name=_PLAIN)) else advice.replace(f"{_PLAIN}[", f"{_PLAIN}-core[")


class _InWords(str):
    """Words in place of a number, which a template prints without quotation marks."""

    def __format__(self, _: str) -> str:
        return str(self)

    __repr__ = str.__str__


def _shown(fact: Any) -> Any:
    """A value as a message quotes it. Half of a secret would have no form, so secrets are hidden before it is shortened."""
    if isinstance(fact, int) and abs(fact) >= 10**MAX_DIGITS:
        return _InWords(number_in_words(fact))
    is_long = isinstance(fact, str) and len(fact) > MAX_VALUE
    # A state.
    return shortened(numbers_cut(without_secrets(fact)), MAX_VALUE) if is_long else getattr(fact, "in_words", fact)


def near_names(name: str, names: Iterable[str], likeness: float = 0.6) -> str:
    """The names that are spelled almost alike; empty without such a name."""
    return " or ".join(difflib.get_close_matches(name, sorted(set(names)), n=3, cutoff=likeness))


def did_you_mean(name: str, names: Iterable[str], otherwise: str, likeness: float = 0.6) -> str:
    """The hint for a name that does not exist: the names near to it, else `otherwise`."""
    return f"Did you mean {near}?" if (near := near_names(name, names, likeness)) else otherwise


#: Ids are alike when all but a few letters are: ids of the same minute have half of their letters in common.
LIKENESS_OF_IDS = 0.85


class Refused(DatabuildError):
    """The command was refused: {why}"""


class Conflict(DatabuildError):
    """Another writer changed {entity} first."""


class NotFound(DatabuildError):
    """There is no {kind} {name!r}."""

    hint = "{suggestion}"

    def __init__(self, *, names: Iterable[str] = (), **facts: Any) -> None:
        """`names` are the existing names, as far as the caller knows."""
        listed = f"{command} lists what exists." if (command := _LISTS.get(facts.get("kind", ""))) else ""
        facts.setdefault("suggestion", did_you_mean(str(facts.get("name")), names, listed, LIKENESS_OF_IDS))
        super().__init__(**facts)


class UnknownAsset(Refused):
    """No code location has registered an asset {asset!r}."""

    hint = "{suggestion}"

    def __init__(self, *, asset: str, names: Iterable[str] = (), suggestion: str = "") -> None:
        """`names` are the registered assets."""
        registered = sorted(names)
        whole, at, _ = asset.partition("@")
        self.near = whole if at and whole in registered else near_names(asset, registered)
        some = f"There {'is' if len(registered) == 1 else 'are'} {few_of(registered)}."
        otherwise = some if registered else f"Load a {_LOADING}"
        likely = f"Did you mean {self.near}?" if self.near else otherwise
        super().__init__(asset=asset, suggestion=suggestion or likely)

    @property
    def of_input(self) -> str:
        """The message about an input, whose name is in code and mostly right."""
        load = f"Did you mean {self.near}? Otherwise load" if self.near else "Load"
        return f"{self.message} {load} the {_LOADING}"


class IllegalMove(DatabuildError):
    """Impossible at seq {seq}: {entity} in state {state} cannot take {on}: {why}"""

    hint = f"This is a bug or a damaged log: run {_CHECK} and report what it prints."

    def __init__(self, *, on: str, why: str, seq: int = 0, entity: str = "log", state: str = "-") -> None:
        super().__init__(seq=seq, entity=entity, state=state, on=on, why=why)


class MissingRow(IllegalMove):
    """Impossible at seq {seq}: {entity} in state {state} refers to {on}, which is missing: {why}."""

    hint = f"The tables are damaged: {_CHECK} lists the damage, and {_REBUILD} computes them again from the log."


class Contradiction(MissingRow):
    """Impossible at seq {seq}: {entity} in state {state} contradicts {on}: {why}."""


class InvalidRef(Refused):
    """{text!r} is not a partition ref: {why}."""

    hint = "Write path/of/asset@partition_key, or path/of/asset for an unpartitioned asset."


class DuplicateRef(Refused):
    """{ref} is named twice in one request."""

    hint = "Name each ref once."


class UnknownPartition(Refused):
    """There is no partition {ref}: {why}"""

    hint = f"{_PARTITIONS} lists the partitions that exist."


class InvalidRequest(Refused):
    """{what} is {value!r}, which is not possible: {why}."""


class NoReason(InvalidRequest):
    """A {what} needs a reason, and this one is empty: {why}."""

    hint = "Give it with --reason TEXT."


class AssetTaken(Refused):
    """Code location {location!r} declares {assets}, which code location {owner!r} has registered."""

    hint = (
        "Declare it in one of the two: when {owner!r} has loaded without it, {location!r} gets it. If {owner!r} no longer "
        f"exists: {_FORGET_OWNER}."
    )


class LocationTaken(Refused):
    """Code location {location!r} has registered {assets}, but the definitions now loaded under that name declare none of them."""

    hint = (
        "If these are two code locations, name each: build_definitions(…, location='…'). If everything was renamed: "
        f"{_FORGET_LOCATION}."
    )


class CanonicalMoved(Refused):
    """{ref} has a newer instance than the one that the command was about."""

    hint = "Nothing was recorded; look again and repeat the command."


class EnvironmentMoved(Refused):
    """The environment {environment} was removed, or is being removed or changed in its base."""

    hint = "Nothing was recorded; look again and repeat the command."


class PromotionRefused(Refused):
    """The base takes no instance of the environment {environment}: {why}."""

    hint = "`databuild env promote --dry-run {typed}` lists every cause."

    def __init__(
        self, *, environment: str, causes: Sequence[tuple[str, str]], why: str = "", typed: Sequence[str] = ()
    ) -> None:
        """`causes` are refs, each with a cause; `typed` the environment and what was named of it."""
        named = few_of([f"{ref}: {cause}" for ref, cause in causes])
        typed = tuple(typed) or (environment,)
        super().__init__(environment=environment, causes=tuple(causes), why=why or named, typed=typed)


class AlreadyStarted(Refused):
    """Launch {launch_id} was started already, by Dagster run {dagster_run_id}."""

    hint = "Nothing to do: that run builds the same refs."


class StaleJobRun(Refused):
    """Job run {job_run_id} is {state}, so its report is not accepted."""

    hint = "Its data stays unread; the ref is built again when it is wanted."


class BeingBuilt(Refused):
    """{ref} is being built by job run {job_run}."""

    hint = f"Wait until it has ended, or cancel it with {_CANCEL_JOB_RUN}."


class WaitsForInputs(BeingBuilt):
    """{ref} waits for inputs that job run {job_run} missed, and these wants hold its lease: {wants}."""

    hint = "Wait until its inputs have ended, or end its lease with `databuild want cancel {wants}`."


class CommandIdUsed(Refused):
    """The command id {command_id} was used before by another actor or with other fields, so nothing was done now."""

    hint = "Give each command an id of its own. A repeated call has the same actor and the same fields."


class NothingToTaint(Refused):
    """{ref} has nothing to taint: it is {state}."""

    hint = f"It will be built when it is wanted: {_WANT}. Of a range, --only live taints the others."


class CannotRevert(Refused):
    """{ref} cannot go back to instance {uuid}: {why}."""

    hint = f"See {_HISTORY}."


class EventNotReverted(Refused):
    """Event {seq} is not reverted: {why}."""

    hint = "`databuild revert --event {seq} --dry-run` lists every cause."

    def __init__(self, *, seq: int, causes: Sequence[tuple[str, str]]) -> None:
        """`causes` are refs, each with a cause."""
        super().__init__(seq=seq, causes=tuple(causes), why=few_of([f"{ref}: {cause}" for ref, cause in causes]))


class NotReversible(Refused):
    """Event {seq} is {type}, and only a promotion, a return or the revert of a ref is reverted by its seq."""

    hint = "`databuild revert --to INSTANCE REF` makes an earlier instance of a ref the one that readers see."


class AlreadyCanonical(CannotRevert):
    """{ref} points to instance {uuid} already."""

    hint = f"If a taint is wrong, {_UNTAINT} removes it; {_HISTORY} shows the taints."


class NothingToRetry(Refused):
    """{ref} is {state}, so there is nothing to retry."""

    hint = (
        f"A retry opens refs that failed, or whose inputs failed; see {_SHOW}. Of a range, --only failed selects them."
    )


class NothingToPause(Refused):
    """{asset} has nothing to pause: it is a {kind}, which nothing here launches."""

    hint = "Pause an asset that reads it."


class AlreadyPaused(Refused):
    """{ref} is paused already, by {actor} ({reason})."""

    hint = f"To change the reason or the end, resume it first: {_RESUME}."


class NotPaused(Refused):
    """{ref} is not paused."""

    hint = f"{_STATUS} lists what is paused."


class PausedAsAWhole(Refused):
    """{ref} is paused with all of {asset}, by {actor} ({reason})."""

    hint = f"Resume the asset, then pause the partitions that are to stay paused: {_RESUME_ASSET}."


class NothingToUntaint(Refused):
    """Taint {taint_id} does not affect any canonical instance: {why}."""

    hint = f"{_HISTORY_OF_ANY} shows every instance of a ref."


class WantEnded(Refused):
    """Want {want_id} is {state} already."""

    hint = f"Nothing to cancel; {_WANTS} shows the open wants."


class JobRunEnded(Refused):
    """Job run {job_run_id} is {state} already."""

    hint = "Nothing to cancel; `databuild history --job-runs --open` shows the open job runs."


class InstanceExists(Refused):
    """Instance {uuid} of {ref} exists already."""

    hint = "Job run ids must be fresh UUIDv7 strings; this one was used before."


class PlanTooLarge(Refused):
    """The plan for {wanted} refs is too large: it has more than {most:,} {what}."""

    hint = "Ask for fewer partitions at once."


class ReachesTooFar(Refused):
    """A change of {named} reaches more than {most:,} partitions, and a simulation holds no more."""

    hint = "Name fewer partitions."


class CyclicInputs(Refused):
    """The declared inputs form a cycle: {cycle}."""

    hint = "Remove one of these inputs from its asset; a ref that needs itself cannot be built."


class UnknownOperationType(Refused):
    """No operation of type {type_name!r} is known here, only {known}."""

    hint = "Load the code location that registers it: build_definitions(operations=[…])."


class NewerOperation(Refused):
    """Operation {id} is of newer code: {why}."""

    hint = f"Install that version here too, or cancel it: {_CANCEL_OPERATION}."


class NewerOperations(NewerOperation):
    """Newer code has listed the operations on {dataset}, in a shape that is not known here."""

    hint = "Install that version here too."


class InvalidOperation(Refused):
    """{type_name} cannot start on {dataset}: {why}."""


class IncompatibleOperation(Refused):
    """{type_name} cannot start on {dataset}: {why}."""

    hint = f"Wait until that has ended, or cancel it: {_OPERATIONS}."


class OperationRace(Conflict):
    """Another operation on {dataset} was started or ended in the same moment, so {type_name} was not started."""

    hint = "Nothing was recorded; start it again."


class LeaseLost(Conflict):
    """This executor has lost the job of operation {id} on {partition!r}."""

    hint = "Stop, and touch nothing: another executor has it, or the operation has ended."
