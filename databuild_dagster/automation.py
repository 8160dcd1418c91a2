"""Automation conditions that ask the store what is live, leased, wanted, tainted or stale."""

from databuild_dagster.bindings.authoring.automation import (
    any_deps_not_live,
    eager,
    failed,
    leased,
    live,
    never_built,
    on_missing,
    schedulable,
    stale,
    tainted,
    unclaimed,
    wanted,
)

__all__ = [
    "any_deps_not_live",
    "eager",
    "failed",
    "leased",
    "live",
    "never_built",
    "on_missing",
    "schedulable",
    "stale",
    "tainted",
    "unclaimed",
    "wanted",
]
