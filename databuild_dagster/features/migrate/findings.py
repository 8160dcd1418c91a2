"""The report on a project: what becomes of each asset, and each line to change."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from databuild_dagster.features.migrate.source_files import Unreadable


class Action(Enum):
    """What to do about a place in the source."""

    #: Write a new text there.
    CHANGE = "change"
    #: Delete it: the package refuses it, or it has no meaning.
    REMOVE = "remove"
    #: Write a further line below it.
    ADD = "add"
    #: The source does not show what is right.
    DECIDE = "decide"
    #: It works as it is, and differs from Dagster.
    NOTE = "note"

    @property
    def touches_lines(self) -> bool:
        return self in (Action.CHANGE, Action.REMOVE, Action.ADD)


class Verdict(Enum):
    """What becomes of an asset."""

    BECOMES = "becomes @databuild_asset"
    BECOMES_MULTI = "becomes @databuild_multi_asset"
    IS = "is a databuild asset"
    STAYS = "stays as it is"
    DECIDE = "needs a decision"

    @property
    def is_ours(self) -> bool:
        """The package builds the asset once the changes are made."""
        return self in (Verdict.BECOMES, Verdict.BECOMES_MULTI, Verdict.IS)


@dataclass(frozen=True)
class Finding:
    """A place in the source."""

    action: Action
    path: str
    line: int
    last_line: int
    #: The text that is there.
    found: str
    #: The text to write, or the advice in a sentence.
    write: str = ""
    #: Why it cannot stay.
    why: str = ""


@dataclass(frozen=True)
class AssetReport:
    """An asset, or a place that makes assets."""

    name: str
    path: str
    line: int
    verdict: Verdict
    #: Why, in sentences; empty if the verdict needs none.
    why: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def n_lines(self) -> int:
        """The lines to change."""
        return n_lines(self.findings)


@dataclass(frozen=True)
class ProjectReport:
    """A whole project."""

    #: The Python files that were read.
    n_files: int
    #: Further files, of tests: their assets are none of the project.
    n_tests: int
    assets: tuple[AssetReport, ...]
    #: The places outside of assets.
    others: tuple[Finding, ...]
    #: What else Dagster's names make and what stays, by its plural, such as "asset checks".
    unchanged: Mapping[str, int] = field(default_factory=dict)
    unreadable: tuple[Unreadable, ...] = field(default=())

    @property
    def n_lines(self) -> int:
        """The number of lines to change, without assets that need a decision."""
        return n_lines([*_of(asset for asset in self.assets if asset.verdict is not Verdict.DECIDE), *self.others])

    @property
    def n_lines_by_decision(self) -> int:
        """Further lines to change if each decision is for a databuild asset."""
        return n_lines([*_of(self.assets), *self.others]) - self.n_lines

    @property
    def n_decisions(self) -> int:
        """The assets and other places that need a decision."""
        of_assets = sum(asset.verdict is Verdict.DECIDE for asset in self.assets)
        return of_assets + sum(finding.action is Action.DECIDE for finding in self.others)

    @property
    def is_done(self) -> bool:
        """Nothing is left to change, to decide or to read."""
        return not (self.n_lines or self.n_decisions or self.unreadable)


def n_lines(findings: Iterable[Finding]) -> int:
    """The number of distinct lines that the findings touch; an added line counts, too."""
    findings = [finding for finding in findings if finding.action.touches_lines]
    added = sum(finding.action is Action.ADD for finding in findings)
    return added + len(
        {
            (finding.path, line)
            for finding in findings
            if finding.action is not Action.ADD
            for line in range(finding.line, finding.last_line + 1)
        }
    )


def _of(assets: Iterable[AssetReport]) -> Iterator[Finding]:
    for asset in assets:
        yield from asset.findings
