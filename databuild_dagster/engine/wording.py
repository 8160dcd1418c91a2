"""Times as people and programs read them, wherever a sentence of ours has one."""

from __future__ import annotations

from datetime import UTC, datetime


def when(at: float) -> str:
    """ISO 8601, UTC, to the second."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
