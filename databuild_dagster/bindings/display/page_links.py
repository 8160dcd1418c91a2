"""Links from Dagster's pages to the page of an instance, where a web server has announced such pages (decision 0051)."""

from typing import Final
from urllib.parse import quote, urlencode

from dagster import MetadataValue, UrlMetadataValue

from databuild_dagster.engine.engine import Engine
from databuild_dagster.engine.orchestrator_notes import pages_root
from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.logs import log_failure, logger
from databuild_dagster.model.refs import Ref

_log = logger(__name__)

#: The metadata with the link.
PAGE: Final = "databuild/page"


def page_metadata(engine: Engine, ref: Ref, uuid: str | None = None) -> dict[str, UrlMetadataValue]:
    """The link to a partition or its instance, as metadata of an event in Dagster; empty while no web server has pages."""
    try:
        root = pages_root(engine)
    except DatabuildError as error:
        # A partition must not fail because of a link.
        log_failure(_log, "Dagster gets no links to the pages of databuild", error)
        return {}
    return {} if root is None else {PAGE: MetadataValue.url(page_of(root, ref, uuid))}


def page_of(root: str, ref: Ref, uuid: str | None) -> str:
    """The page of a partition, with the chosen instance, on the web server whose pages are at the path `root`."""
    query = {"ref": ref} if uuid is None else {"ref": ref, "instance": uuid}
    return f"{root}/partition?{urlencode(query, quote_via=quote)}"
