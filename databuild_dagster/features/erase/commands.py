"""`databuild erase`: rows that match a condition leave a dataset for good; shown first, and done with --yes (rule 10.11)."""

from hashlib import sha256
from typing import Any, Literal

import click
import msgspec
from msgspec import UNSET, UnsetType

from databuild_dagster.cli.options import table_timeout, tabular
from databuild_dagster.cli.output import count, emit, shown, table
from databuild_dagster.cli.process import FAILED, Exit
from databuild_dagster.cli.state import the_engine, the_instance, the_warehouse
from databuild_dagster.data.keepers import open_keepers
from databuild_dagster.features.erase.erased_tables import ErasedTables
from databuild_dagster.features.erase.erasing import (
    Eraser,
    MatchingFile,
    MatchingInstance,
    Receipt,
    RewrittenInstance,
    Survey,
)
from databuild_dagster.features.erase.erasing_leftovers import NamedPlace
from databuild_dagster.features.tables.keeping import PublishedFiles
from databuild_dagster.model.errors import InvalidRequest
from databuild_dagster.model.records import extended
from databuild_dagster.model.refs import Ref


@click.command()
@click.argument("dataset", metavar="DATASET")
@click.option(
    "--where",
    metavar="SQL",
    required=True,
    help="The rows to erase, as in \"email = 'ada@example.org' or user_id in (7, 9)\". partition_key is a column, too.",
)
@click.option("--reason", metavar="TEXT", default=None, help="The log keeps it permanently: name no person in it.")
@click.option("--dry-run", is_flag=True, help="Show what would be done, as without --yes.")
@click.option("--yes", is_flag=True, help="Erase the rows. Without --yes nothing is changed, only shown.")
@table_timeout
@tabular
def erase(
    dataset: str, where: str, reason: str | None, dry_run: bool, yes: bool, timeout: float | None, as_json: bool
) -> None:
    """Erase rows of DATASET, in every instance and copy.

    Each instance that readers see is written again without the rows. All data with a matching row is removed: earlier and tainted
    instances, the rest of attempts, index statistics, samples and snapshots of a published table. Nothing becomes stale and no
    arc fires. A receipt shows that no kept file has such a row, by reading all of them again; exit code 1 means that some may be
    left, and the same command continues.
    """
    if "@" in dataset:
        raise InvalidRequest(
            what="DATASET",
            value=dataset,
            why="rows leave all partitions of a dataset; name some by partition_key in --where",
        )
    if yes and dry_run:
        raise click.UsageError("--yes excludes --dry-run; give one of them.")
    if yes and not (reason and reason.strip()):
        raise click.UsageError("--yes needs --reason.")
    engine, warehouse = the_engine(), the_warehouse()
    found = open_keepers(engine, warehouse, seconds=timeout, instance=the_instance)
    # Erasing needs a keeper of published tables that knows which snapshots it has expired.
    keepers = [keeper for keeper in found if not isinstance(keeper, PublishedFiles)]
    eraser = Eraser(engine, warehouse, ErasedTables(engine, warehouse, seconds=timeout), keepers)
    if not yes:
        survey = eraser.survey(dataset, where)
        emit(_survey_shape(dataset, where, survey)) if as_json else _show_survey(dataset, survey)
        return
    receipt = eraser.erase(dataset, where, str(reason).strip())
    if refs := {match.ref for match in receipt.removed} | {rewritten.ref for rewritten in receipt.rewritten}:
        for keeper in keepers:
            keeper.changed(refs)
    emit(_receipt_shape(receipt)) if as_json else _show_receipt(receipt)
    if not receipt.is_complete:
        raise Exit(FAILED)


class ErasedInstance(msgspec.Struct, frozen=True, kw_only=True):
    """An instance with matching rows; `action` and `files_matched` are of a dry run alone."""

    ref: Ref
    uuid: str
    action: Literal["rewrite", "remove"] | UnsetType = UNSET
    rows: int
    matched: int
    files: int
    files_matched: int | UnsetType = UNSET


class SurveyRead(msgspec.Struct, frozen=True):
    """What a survey has read."""

    instances: int
    files: int
    rows: int


class Proof(SurveyRead, frozen=True):
    """The survey after the last change."""

    matched: int


class ShownSurvey(msgspec.Struct, frozen=True):
    """The dry run of an erasure."""

    done: bool
    dataset: str
    where_sha256: str
    instances: list[ErasedInstance]
    matched: int
    read: SurveyRead
    leftovers: list[NamedPlace]
    downstream: list[Ref]
    not_done: list[NamedPlace]
    outside: list[MatchingFile]


class ShownReceipt(msgspec.Struct, frozen=True):
    """The receipt of an erasure."""

    done: bool
    complete: bool
    dataset: str
    where_sha256: str
    reason: str
    by: str
    rewritten: list[RewrittenInstance]
    removed: list[ErasedInstance]
    leftovers: list[NamedPlace]
    downstream: list[Ref]
    not_done: list[NamedPlace]
    outside: list[MatchingFile]
    proof: Proof | None


def _erased(match: MatchingInstance, **of_dry_run: object) -> ErasedInstance:
    return extended(ErasedInstance, match, match.counted, files=len(match.manifest.files), **of_dry_run)


# A dry run


def _survey_shape(dataset: str, where: str, survey: Survey) -> ShownSurvey:
    return extended(
        ShownSurvey,
        survey,
        done=False,
        dataset=dataset,
        where_sha256=sha256(where.encode()).hexdigest(),
        instances=[
            _erased(match, action=_action(match.is_read), files_matched=len(match.by_file)) for match in survey.matches
        ],
        read=extended(SurveyRead, survey),
        leftovers=survey.leftovers.listed,
        not_done=survey.not_done_yet,
    )


def _show_survey(dataset: str, survey: Survey) -> None:
    rows = [
        (match.ref, match.uuid, _action(match.is_read), match.counted.matched, match.counted.rows)
        for match in survey.matches
    ]
    columns = ("ref", "instance", "action", "matching", "rows")
    table(columns, rows, empty=f"No kept instance of {dataset} has a row that matches.")
    if survey.leftovers.listed:
        what = [one.what for one in survey.leftovers.listed]
        click.echo(f"Removed with them: {count(len(what), 'rest', 'rests')} of attempts ({shown(what, 2)}).")
    _show_rest(survey.downstream, survey.not_done_yet, survey.outside)
    click.echo(
        f"{count(survey.matched, 'row')} of {count(len(survey.matches), 'instance')} would be erased. "
        "Nothing was done; --yes does it."
    )


def _action(is_read: bool) -> Literal["rewrite", "remove"]:
    return "rewrite" if is_read else "remove"


# The receipt


def _receipt_shape(receipt: Receipt) -> ShownReceipt:
    return extended(
        ShownReceipt,
        receipt,
        receipt.erasure,
        done=True,
        complete=receipt.is_complete,
        dataset=receipt.asset,
        removed=list(map(_erased, receipt.removed)),
        proof=receipt.proof and extended(Proof, receipt.proof),
    )


def _show_receipt(receipt: Receipt) -> None:
    rows = [
        (one.ref, one.uuid, "rewritten", one.rows_before - one.rows_after, one.rows_after) for one in receipt.rewritten
    ]
    done = {one.uuid for one in receipt.rewritten}
    rows += [
        (match.ref, match.uuid, "removed", match.counted.matched, 0)
        for match in receipt.removed
        if match.uuid not in done
    ]
    columns = ("ref", "instance", "action", "erased", "rows now")
    table(columns, rows, empty=f"No kept instance of {receipt.asset} had a row that matches.")
    _show_rest(receipt.downstream, receipt.not_done, receipt.outside)
    assert receipt.proof is not None, "it is the last step"
    proof = receipt.proof
    click.echo(
        f"Read again: {count(proof.rows, 'row')} in {count(proof.files, 'file')} of {count(proof.instances, 'instance')}, "
        f"of which {proof.matched} match."
    )


def _show_rest(downstream: list[Any], not_done: list[Any], outside: list[Any]) -> None:
    if downstream:
        click.echo(f"Built from such rows, and may hold derived ones: {shown(downstream)}. Erase there too.")
    for one in outside:
        click.echo(
            f"Outside of our reach: {one.path} of {one.ref} has {count(one.matched, 'row')} that match; its owner has to erase them.",
            err=True,
        )
    for one in not_done:
        click.echo(f"Not done: {one.what}, for {one.why.rstrip('.')}.", err=True)
