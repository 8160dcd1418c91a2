"""The fixtures of the core, of the bindings and of the command line, for the tests of all features."""

from tests.bindings.conftest import deploy, instance
from tests.support.fixtures import database, make_world, pytest_generate_tests, shared_url, world

__all__ = ["database", "deploy", "instance", "make_world", "pytest_generate_tests", "shared_url", "world"]
