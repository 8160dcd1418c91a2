"""A project in whose folder functions are called, and an empty home."""

from collections.abc import Iterator

import pytest

from tests.support.project import Project, empty_home, project

__all__ = ["empty_home", "project"]


@pytest.fixture
def inside(project: Project) -> Iterator[Project]:
    """The project, with this process in its folder."""
    with project.own_process():
        yield project
