"""The fixtures of the core."""

from tests.support.fixtures import database, make_world, pytest_generate_tests, shared_url, world

__all__ = ["database", "make_world", "pytest_generate_tests", "shared_url", "world"]
