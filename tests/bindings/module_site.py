"""The common state of a module's tests is built once: they look at it, or each goes on from a copy of its home."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from databuild_dagster.bindings.adapter.sqlite_tuning import tune_dagster_writes
from tests.support.dagster_files import fresh_instance

from .conftest import Site, deployed


@contextmanager
def module_site(spark_home: str, *assets: Any, **options: Any) -> Iterator[Site]:
    """As `deploy` makes it, on an instance of its own.

    `fresh_instance(site.instance.root_directory)` copies it, with the data in its home (rule 3.10). A copy builds into no
    warehouse outside its home until it takes over (rule 3.11).
    """
    tune_dagster_writes()
    with fresh_instance(set_dagster_home=False) as instance:
        yield deployed(instance, spark_home, *assets, **options)
