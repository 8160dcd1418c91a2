"""The project in which commands run, as a user has it."""

from tests.support.project import empty_home, known_project, project, shared_project

__all__ = ["empty_home", "known_project", "project", "shared_project"]
