"""The fixtures of the pages: a small state, and the application over it."""

from __future__ import annotations

from tests.support.pages_world import acting, client, own_world, world

__all__ = ["acting", "client", "own_world", "world"]
