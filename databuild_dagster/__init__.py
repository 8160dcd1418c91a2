"""Want a partition, and everything it needs is built once, on Spark, as Dagster runs.

A public name is imported at its first use: `import databuild_dagster` starts neither Dagster nor Spark. The names are
listed once, in the stub `__init__.pyi`, as scientific Python's lazy_loader does it; the stub is read at the first use, too.
"""

from functools import cache
from importlib import import_module
from typing import Any


@cache
def _modules() -> dict[str, str]:
    """Public name to the module that defines it, without the names of features whose folders were removed.

    Dagster gets every name that `dir` lists while it looks for components.
    """
    import ast
    from pathlib import Path

    stub = Path(__file__).with_suffix(".pyi")
    features = stub.with_name("features")
    lines = [line for line in ast.parse(stub.read_text(encoding="utf-8")).body if isinstance(line, ast.ImportFrom)]
    found = {alias.name: str(line.module).split(".") for line in lines for alias in line.names}
    return {
        name: ".".join(module)
        for name, module in found.items()
        if module[1] != features.name or (features / module[2]).is_dir()
    }


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
