"""The fixtures of the core, of the bindings and of the command line, for the tests of all features."""

from tests.bindings.conftest import deploy, instance
from tests.support.fixtures import database, make_world, pytest_generate_tests, shared_url, world
from tests.support.project import empty_home, known_project, project, shared_project

__all__ = [
    "database",
    "deploy",
    "empty_home",
    "instance",
    "known_project",
    "make_world",
    "project",
    "pytest_generate_tests",
    "shared_project",
    "shared_url",
    "world",
]
