"""The fixtures of the pages: a small state, the application over it, and the document of the API."""

from __future__ import annotations

from typing import Any

import pytest

from databuild_dagster.web.openapi import openapi_document
from tests.support.pages_world import acting, client, own_world, world

__all__ = ["acting", "client", "own_world", "world"]


@pytest.fixture(scope="session")
def document() -> dict[str, Any]:
    return openapi_document()
