"""`databuild relocate`: data of an earlier partitions definition is kept (rule 2.6)."""

import click

from databuild_dagster.cli.definitions import deployed_dataset
from databuild_dagster.cli.options import Where, definitions, tabular
from databuild_dagster.cli.output import count, emit, table
from databuild_dagster.features.relocate.relocating import Relocator, Survey


@click.command()
@click.argument("asset", metavar="ASSET")
@click.option("--dry-run", is_flag=True, help="Show what would be carried over, and carry nothing over.")
@definitions
@tabular
def relocate(asset: str, dry_run: bool, where: Where, as_json: bool) -> None:
    """Bring data of ASSET to the keys of its new partitions.

    When the partitions of an asset are redefined, readers leave out what was built under keys that are gone or mean a different window
    of time. An instance whose window a key has now becomes a new instance of that key, with the same files. Any other instance stays
    as it is: build its partition anew.
    """
    found = deployed_dataset(asset, where)
    relocator = Relocator(found.engine, found.instance, found.dataset)
    survey = relocator.survey()
    if not dry_run:
        failed = relocator.relocate(survey.moves)
        survey = Survey([move for move in survey.moves if move.ref not in failed], survey.stay | failed)
    if as_json:
        emit({"done": not dry_run, "moves": [move._asdict() for move in survey.moves], "stay": survey.stay})
        return
    _show(asset, survey, dry_run=dry_run)


def _show(asset: str, survey: Survey, *, dry_run: bool) -> None:
    table(
        ("ref", "to"),
        [(move.ref, move.to) for move in survey.moves],
        empty=f"No instance of {asset} can be carried over.",
    )
    if survey.moves:
        verb = "would be" if dry_run else "were"
        click.echo(f"{count(len(survey.moves), 'instance')} {verb} carried over.")
    for why in dict.fromkeys(survey.stay.values()):
        refs = [ref for ref, reason in survey.stay.items() if reason == why]
        click.echo(f"{count(len(refs), 'instance')} {'stays' if len(refs) == 1 else 'stay'}, first {refs[0]}: {why}.")
