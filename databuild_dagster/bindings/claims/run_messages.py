"""The sentences in the log of a Dagster run about refs that other runs build; a step and a held run use the same."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from dagster import AssetKey, Failure

from databuild_dagster.bindings.adapter.keys import asset_text
from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.why.reasons import NAMED, look_up
from databuild_dagster.engine.wording import pause_in_words, to_resume, to_retry
from databuild_dagster.model.coordination import MESSAGES, SKIPPED_MESSAGE, Answer
from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.pauses import PauseInForce
from databuild_dagster.model.refs import Ref, partition_key_of
from databuild_dagster.model.states import FAILING, OPEN_WANTS
from databuild_dagster.model.wording import few_of, typed


def skipped_of(asked: Iterable[Ref], reused: Collection[Ref]) -> list[Ref]:
    """The refs of a job whose partition key has only reused refs, so that its job run was skipped (rule 8.2)."""
    built = {partition_key_of(ref) for ref in asked if ref not in reused}
    return [ref for ref in reused if partition_key_of(ref) not in built]


def joined(refs: Sequence[Ref]) -> str:
    """A run elsewhere is building the refs."""
    return f"{few_of(refs)} is being built elsewhere: {MESSAGES[Answer.JOIN]}."


def reused(refs: Sequence[Ref]) -> str:
    """The refs were live before the run asked for them."""
    return f"{few_of(refs)}: {MESSAGES[Answer.REUSE]}."


def skipped(refs: Sequence[Ref]) -> str:
    """Each ref of the partition keys was live, so no job ran for them."""
    return f"{few_of(refs)}: {SKIPPED_MESSAGE}."


def refused(ref: Ref, why: str) -> str:
    """The ref had failed before the run asked for it; `why` names the ref."""
    return f"{why}. {to_retry(ref)}."


def paused(ref: Ref, pause: PauseInForce) -> str:
    """A person paused the ref, so the run neither builds it nor waits for it (rule 6.13)."""
    return f"{ref} is {pause_in_words(ref, pause)}; {to_resume(pause)}."


def denied(sentences: Mapping[Ref, str]) -> str:
    """The run fails because refs were refused; `sentences` has the reason of each."""
    are = "was" if len(sentences) == 1 else "were"
    return f"{few_of(list(sentences))} {are} refused. {next(iter(sentences.values()))}"


def failed_elsewhere(ref: Ref, reason: str | None) -> str:
    """The ref failed while the run waited for it."""
    return f"{ref}, built elsewhere, failed: {reason or 'its build failed'}"


def failed(refs: Sequence[Ref], error: str, details: str) -> str:
    """A job run failed; `details` has the traceback."""
    return f"{few_of(refs)} failed: {error}\n\n{details}"


def failed_alike(refs: Sequence[Ref], first: str, error: str) -> str:
    """A job run failed as the first one did, whose message has the traceback."""
    return f"{few_of(refs)} failed as {first} did: {error}"


def details_of(message: str, refs: str) -> tuple[str | None, str | None]:
    """Of a message about the failure of `refs`, which `few_of` has joined: the details, or the refs that have them.

    Neither for any other message.
    """
    if message.startswith(f"{refs} failed: "):
        return message.partition("\n\n")[2], None
    alike, said, _ = message.partition(" did: ")
    begins = f"{refs} failed as "
    return None, alike.removeprefix(begins) if said and alike.startswith(begins) else None


def given_up_elsewhere(refs: Sequence[Ref]) -> str:
    """The other run was canceled or lost, so this run builds the refs."""
    return f"{few_of(refs)} is no longer built by another run; this run builds it."


def gave_way(waiting: Sequence[Ref], needed: Sequence[Ref]) -> str:
    """The run held a slot that a launch before its refs is queued for."""
    return (
        f"{few_of(needed)} is queued for a slot in Dagster, and this run held one while it waited for {few_of(waiting)}: "
        "this run ends, and its want builds the refs."
    )


def stalled(waiting: Mapping[Ref, str | None], seconds: float) -> str:
    """The time limit is over; `waiting` has the job run that should build each ref, if it exists."""
    ref, job_run = next(iter(waiting.items()))
    builder = f"job run {job_run} of {ref} has not ended" if job_run else f"the next try of {ref} has not begun"
    return f"Waited {seconds:.0f} s for {few_of(list(waiting))} from elsewhere: {builder}. See `databuild history --job-runs`."


def temporary_home(home: str) -> str:
    """The command that started the run removes its home at its end, and no other command knows of it."""
    return (
        f"DAGSTER_HOME is not set, so this run is recorded in {home}, which is removed at its end: neither `databuild` nor a later "
        "run sees what it builds. Name a home for all of them: export DAGSTER_HOME=$PWD/.dagster_home && mkdir -p $DAGSTER_HOME"
    )


def outside(assets: Iterable[AssetKey]) -> str:
    """The assets of a step belong to no code location of databuild, so nothing builds what they lack."""
    names = sorted(asset_text(key) for key in assets)
    are = "is" if len(names) == 1 else "are"
    return (
        f"{few_of(names)} {are} not given to build_definitions, so no orchestrator builds inputs that are not live, or repeats "
        f"a failure: write defs = build_definitions([{', '.join(names[:3])}, …]) in place of dg.Definitions."
    )


class NotBuilt(DatabuildError, Failure):
    """{named} not live at the end of this run: {why}"""

    def __init__(
        self, *, refs: Sequence[Ref], why: str, named: str = "", metadata: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        are = "is" if len(refs) == 1 else "are"
        super().__init__(refs=tuple(refs), why=why, named=named or f"{few_of(refs)} {are}")
        self.allow_retries = False
        #: Of a function that raised Dagster's `Failure`, its metadata.
        self.metadata = dict(metadata)

    @property
    def refs(self) -> tuple[Ref, ...]:
        """The refs that were asked for and are not live."""
        found: tuple[Ref, ...] = self.facts["refs"]
        return found


class NotLive(NamedTuple):
    """A ref that a Dagster run asked for and that is not live at its end (rule 8.8)."""

    sentence: str
    #: Failed or UpstreamFailed; any other ref waits.
    has_failed: bool
    #: Whether an open want names it.
    is_wanted: bool
    #: Its missing inputs, and the open wants for the inputs and for the ref itself.
    waits_for: tuple[Ref, ...]
    wants: tuple[str, ...]


def not_live(engine: Engine, refs: Iterable[Ref]) -> dict[Ref, NotLive]:
    """Each ref, with its causes and their wants in a sentence."""
    asked = list(refs)
    now = engine.now()
    known = look_up(engine.queries, asked, now)
    causes = {ref: known.missing.get(ref, ()) for ref in asked}
    newest = engine.queries.wants.last_of({*asked, *(cause for of_ref in causes.values() for cause in of_ref)})
    wants = {ref: want.want_id for ref, want in newest.items() if want.state in OPEN_WANTS}
    found = {}
    for ref, missing in causes.items():
        has_failed = known.state(ref) in FAILING
        if has_failed:
            sentence = f"{ref}: {known.why(ref, now)}. {to_retry(ref)}."
        else:
            named = [f"{cause} (want {wants[cause]})" if cause in wants else cause for cause in missing]
            waits = f"{ref} waits for {few_of(named, NAMED)}" if named else f"{ref}: {known.why(ref, now)}"
            then = (
                f"want {wants[ref]} builds it"
                if ref in wants
                else f"no want is open: `databuild build {typed(ref)}` builds it"
            )
            sentence = f"{waits}; {then}. `databuild explain {typed(ref)}` shows its progress."
        of_ref = tuple(wants[name] for name in (*missing, ref) if name in wants)
        found[ref] = NotLive(sentence, has_failed, ref in wants, missing, of_ref)
    return found
