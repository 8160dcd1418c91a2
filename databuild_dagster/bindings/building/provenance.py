"""The code, config and libraries that decide what a launch writes, besides its inputs (rule 4.6).

They are recorded once, when the launch starts, so that a receipt does not depend on Dagster's storage, which people
prune: the log keeps only the id of a Dagster run. Environment variables in a config stay names, and secrets are left out.
"""

import inspect
import json
import platform
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from types import CodeType
from typing import Any, Final

from dagster import AssetExecutionContext

from databuild_dagster.bindings.reading.spark_resource import SPARK_CONFIG_TAG
from databuild_dagster.model.events import MadeWith
from databuild_dagster.model.redaction import values_without_secrets, without_secrets
from databuild_dagster.spark.installed import DISTRIBUTIONS
from databuild_dagster.version import __version__

#: Libraries whose next version may write other rows.
LIBRARIES: Final = ("dagster", *DISTRIBUTIONS, "pandas", "pyarrow")
#: Run tags that change how data is built.
_TAGS: Final = (SPARK_CONFIG_TAG,)


def made_with(context: AssetExecutionContext, function: Any) -> MadeWith:
    """The provenance of the step that calls the function."""
    return MadeWith(
        code=code_digest(function),
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


def code_digest(function: Any) -> str | None:
    """A digest of the function's own code, for an asset without a code version; functions that it calls are left out.

    None for a callable that is no function.
    """
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return None
    digest, left = sha256(), [code]
    while left:
        part = left.pop()
        digest.update(repr((part.co_code, part.co_names, part.co_varnames)).encode())
        for const in part.co_consts:
            if isinstance(const, CodeType):
                left.append(const)
            else:
                digest.update(_text_of_constant(const).encode())
    return f"code-sha256:{digest.hexdigest()}"


def _text_of_constant(const: Any) -> str:
    """A set's text, sorted, because the order of its members differs between processes."""
    if isinstance(const, frozenset):
        return f"frozenset({sorted(map(_text_of_constant, const))})"
    return repr(const)
