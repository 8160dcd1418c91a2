"""What authors use in tests of their own assets; the fixture is in `databuild_dagster.pytest_plugin`."""

from databuild_dagster.bindings.direct import build_context

__all__ = ["build_context"]
