"""What authors use in tests of their own assets; the fixture is in `databuild_dagster.pytest_plugin`."""

from databuild_dagster.bindings.building.direct_call import build_context

__all__ = ["build_context"]
