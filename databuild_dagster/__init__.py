"""Want a partition, and everything it needs is built once, on Spark, as Dagster runs.

A public name is imported at its first use: `import databuild_dagster` starts neither Dagster nor Spark. The names are
listed once, in the stub `__init__.pyi`, as scientific Python's lazy_loader does it; the stub is read at the first use, too.
"""

from functools import cache
from importlib import import_module
from typing import Any


@cache
def _modules() -> dict[str, str]:
    """Public name to the module that defines it."""
    import ast
    from pathlib import Path

    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    lines = [line for line in stub.body if isinstance(line, ast.ImportFrom)]
    return {alias.name: str(line.module) for line in lines for alias in line.names}


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return sorted(_modules())
    # A name of Python's own, such as `__path__`, or of a submodule that is not imported yet.
    if name.startswith("_") or name not in _modules():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_modules()[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_modules()})
