"""What besides its inputs decides what a launch writes: the code, its config, the libraries (SPEC 4.6).

Recorded once, when the launch starts, so that a receipt can tell it whatever becomes of the Dagster run: of that the log
keeps the id alone, and people prune Dagster's storage. What a config names by environment variable stays a name.
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

#: Those whose next version may write other rows, or none.
LIBRARIES: Final = ("databuild_dagster", "dagster", "pyspark", "pandas", "pyarrow")
#: Run tags that say how to build, and not what or for whom.
_TAGS: Final = (SPARK_CONFIG_TAG,)


def made_with(context: AssetExecutionContext, function: Any) -> MadeWith:
    """Of the step that calls the function."""
    return MadeWith(
        code=code_digest(function),
        config=_config_of(context.op_execution_context.node_handle.name, context.run.run_config),
        tags={name: context.run.tags[name] for name in _TAGS if name in context.run.tags},
        versions=dict(_versions()),
    )


def _config_of(step: str, run_config: Mapping[str, Any]) -> dict[str, Any]:
    """What of a run's config a step sees, as the Launchpad takes it; how and where a run executes is not in it."""
    of_step = (run_config.get("ops") or {}).get(step)
    seen = {"ops": {step: of_step} if of_step else None, "resources": run_config.get("resources")}
    told = json.dumps({name: each for name, each in seen.items() if each}, default=str, ensure_ascii=False)
    # Half of a character is text in Python, and none in a database.
    config: dict[str, Any] = json.loads(told.encode("utf-8", "replace"))
    return config


@lru_cache(maxsize=1)
def _versions() -> tuple[tuple[str, str], ...]:
    """Of this process, in which they do not change."""
    found = [("python", platform.python_version())]
    for library in LIBRARIES:
        try:
            found.append((library, version(library)))
        except PackageNotFoundError:
            continue
    return tuple(found)


def code_digest(function: Any) -> str | None:
    """Another text as soon as the function's own code is another, for an asset that tells no code version.

    What it calls is not looked at. None for what is no function.
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
    """The order of a set's members is another one in each process."""
    if isinstance(const, frozenset):
        return f"frozenset({sorted(map(_text_of_constant, const))})"
    return repr(const)
