"""Tests of what the log and the files say together start from builds as Dagster runs them."""

from tests.bindings.conftest import deploy, instance

__all__ = ["deploy", "instance"]
