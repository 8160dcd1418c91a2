"""The refs that a Dagster run asked for and that are not live at its end, with the cause of each (rule 8.8)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from dagster import Failure

from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.why.reasons import NAMED, look_up
from databuild_dagster.engine.wording import to_retry
from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.refs import Ref
from databuild_dagster.model.states import FAILING, OPEN_WANTS
from databuild_dagster.model.wording import few_of


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
    """A ref that is not live."""

    sentence: str
    #: Failed or UpstreamFailed; any other ref waits.
    has_failed: bool
    #: Whether an open want names it.
    is_wanted: bool
    #: Its missing inputs, and the open wants for these and for the ref itself.
    waits_for: tuple[Ref, ...]
    wants: tuple[str, ...]


def not_live(engine: Engine, refs: Iterable[Ref]) -> dict[Ref, NotLive]:
    """Each ref, with its causes and their wants in a sentence."""
    asked = list(refs)
    now = engine.now()
    known = look_up(engine.queries, asked, now)
    causes = {ref: known.missing.get(ref, ()) for ref in asked}
    newest = engine.queries.last_wants({*asked, *(cause for of_ref in causes.values() for cause in of_ref)})
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
                else f"no want is open: `databuild build {ref}` builds it"
            )
            sentence = f"{waits}; {then}. `databuild explain {ref}` shows its progress."
        of_ref = tuple(wants[name] for name in (*missing, ref) if name in wants)
        found[ref] = NotLive(sentence, has_failed, ref in wants, missing, of_ref)
    return found
