"""The project in which commands of features run, and a deployed code location on a Dagster instance."""

from tests.bindings.conftest import deploy, instance
from tests.support.project import empty_home, known_project, project, shared_project

__all__ = ["deploy", "empty_home", "instance", "known_project", "project", "shared_project"]
