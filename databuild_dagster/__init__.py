"""Want a partition, and everything it needs is built once, on Spark, as Dagster runs.

A public name is imported at its first use: `import databuild_dagster` starts neither Dagster nor Spark. The names are
listed once, in the stub `__init__.pyi`, as scientific Python's lazy_loader does it.
"""

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

_STUB = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
#: Public name to the module that defines it.
_MODULE_OF = {
    alias.name: str(line.module) for line in _STUB.body if isinstance(line, ast.ImportFrom) for alias in line.names
}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
