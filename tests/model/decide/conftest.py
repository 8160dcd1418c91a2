"""The fixtures of the core."""

from tests.support.fixtures import make_world, world

__all__ = ["make_world", "world"]
