"""The urls and the pages that look closer: two instances compared, a receipt, a few rows."""

from pathlib import Path
from threading import BoundedSemaphore
from typing import Any, Final

from databuild_dagster.engine.why.want_report import check_partition
from databuild_dagster.features.compare.differences import Difference, diff_of
from databuild_dagster.features.compare.receipts import MAX_ENTRIES, ShownReceipt, shown_receipt
from databuild_dagster.features.compare.samples import ShownSample, sample_of
from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.refs import Ref, asset_of
from databuild_dagster.store.queries.ids import IdKind
from databuild_dagster.web.parameters import number, ref, text
from databuild_dagster.web.routes import INSTANCE, ApiRoute, Ask, Page, parameters_of
from databuild_dagster.web.state import State

#: Instances of a receipt that a page shows; the API has more.
MAX_SHOWN: Final = 100
TEMPLATES: Final = Path(__file__).parent / "templates"
#: Samples that are read at once, of the few threads that answer; a bucket may take seconds.
MAX_SAMPLES: Final = 2
_sampling = BoundedSemaphore(MAX_SAMPLES)


class TooManySamples(DatabuildError):
    """{most} samples of rows are being read, and the web server begins no further one."""

    hint = "Try again in some seconds."


def diff(state: State, a: str, b: str) -> Difference:
    """What differs between two instances."""
    queries = state.engine.queries
    return diff_of(queries, *(queries.ids.full(IdKind.INSTANCE, text) for text in (a, b)))


def receipt(state: State, instance: str, limit: int) -> ShownReceipt:
    """What an instance was made of."""
    queries = state.engine.queries
    return shown_receipt(queries, queries.ids.full(IdKind.INSTANCE, instance), limit)


def sample(state: State, ref: Ref) -> ShownSample:
    """A few rows of what readers of a ref see, if the author of its asset allows it. Raises `TooManySamples`."""
    engine = state.engine
    check_partition(engine.queries, engine.catalog, ref)
    if not _sampling.acquire(blocking=False):
        raise TooManySamples(most=MAX_SAMPLES)
    try:
        return sample_of(engine.queries, ref)
    finally:
        _sampling.release()


ROUTES: Final = (
    ApiRoute(
        "/diff",
        "What differs between two instances: inputs, code, configuration, rows, columns.",
        diff,
        Difference,
        (
            text("a", "The uuid of the earlier instance, or its end.", required=True),
            text("b", "The uuid of the later instance, or its end.", required=True),
        ),
    ),
    ApiRoute(
        "/receipt",
        "What an instance was made of: the instances behind it with their code and environment, the nearest first.",
        receipt,
        ShownReceipt,
        (INSTANCE, number("limit", "The number of instances at most.", MAX_ENTRIES, 1, MAX_ENTRIES)),
    ),
    ApiRoute(
        "/sample",
        "A few rows of what readers of a ref see, if the author of its asset allows it.",
        sample,
        ShownSample,
        (ref("ref", "The partition.", required=True),),
    ),
)


def _diff_page(ask: Ask, values: dict[str, Any]) -> dict[str, Any]:
    """Two instances side by side."""
    found = ask("diff", **values)
    return {"diff": found, "dataset": asset_of(found["b"]["ref"])}


def _receipt_page(ask: Ask, values: dict[str, Any]) -> dict[str, Any]:
    """What an instance was made of."""
    found = ask("receipt", instance=values["instance"], limit=MAX_SHOWN)
    return {"receipt": found, "dataset": asset_of(found["ref"])}


def _sample_page(ask: Ask, values: dict[str, Any]) -> dict[str, Any]:
    """A few rows."""
    found = ask("sample", ref=values["ref"])
    return {"sample": found, "dataset": asset_of(found["ref"])}


PAGES: Final = (
    Page("/diff", "diff.html", _diff_page, parameters_of(ROUTES, "/diff"), below="/assets", folder=TEMPLATES),
    Page("/receipt", "receipt.html", _receipt_page, (INSTANCE,), below="/assets", folder=TEMPLATES),
    Page("/sample", "sample.html", _sample_page, parameters_of(ROUTES, "/sample"), below="/assets", folder=TEMPLATES),
)
