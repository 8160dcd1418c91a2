"""The fixtures of the bindings."""

from tests.bindings.conftest import deploy, instance

__all__ = ["deploy", "instance"]
