"""The code, config and libraries that decide what a launch writes, besides its inputs (rule 4.6).

They are recorded once, when the launch starts, so that a receipt does not depend on Dagster's storage, which people
prune: the log keeps only the id of a Dagster run. Environment variables in a config stay names, and secrets are left out.
"""

import json
import platform
from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from dagster import AssetExecutionContext
from msgspec import UNSET

from databuild_dagster.bindings.reading.spark_resource import SPARK_CONFIG_TAG
from databuild_dagster.model.datasets import DatasetSpec
from databuild_dagster.model.events import MadeWith
from databuild_dagster.model.redaction import values_without_secrets, without_secrets
from databuild_dagster.spark.installed import DISTRIBUTIONS
from databuild_dagster.version import __version__

#: Libraries whose next version may write other rows.
LIBRARIES: Final = ("dagster", *DISTRIBUTIONS, "pandas", "pyarrow")
#: Run tags that change how data is built.
_TAGS: Final = (SPARK_CONFIG_TAG,)


def made_with(context: AssetExecutionContext, dataset: DatasetSpec | None) -> MadeWith:
    """The provenance of a step that builds `dataset`, alone or with other datasets; a step without a dataset has no code."""
    code = dataset.code if dataset else UNSET
    return MadeWith(
        code=dataset.code_text if dataset else None,
        unknown=code.unknown if code else (),
        config=_config_of(context.op_execution_context.node_handle.name, context.run.run_config),
        tags={name: without_secrets(context.run.tags[name]) for name in _TAGS if name in context.run.tags},
        versions=dict(_versions()),
    )


def _config_of(step: str, run_config: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a run's config that a step sees, in the form of the Launchpad, without settings of execution."""
    of_step = (run_config.get("ops") or {}).get(step)
    seen = {"ops": {step: of_step} if of_step else None, "resources": run_config.get("resources")}
    text = json.dumps({name: value for name, value in seen.items() if value}, default=str, ensure_ascii=False)
    # Python allows half of a surrogate pair in a text, and databases do not.
    config: dict[str, Any] = values_without_secrets(json.loads(text.encode("utf-8", "replace")))
    return config


@lru_cache(maxsize=1)
def _versions() -> tuple[tuple[str, str], ...]:
    """The versions in this process, which do not change."""
    found = [("python", platform.python_version()), ("databuild_dagster", __version__)]
    for library in LIBRARIES:
        try:
            found.append((library, version(library)))
        except PackageNotFoundError:
            continue
    return tuple(found)
