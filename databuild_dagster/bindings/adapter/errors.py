"""Errors of a Dagster that is not the one that the package knows."""

from databuild_dagster.model.errors import DatabuildError


class DagsterDiffers(DatabuildError, ImportError):
    """Dagster {version} lacks a name that this version of databuild_dagster uses: {why}."""

    hint = "Install a Dagster that it knows: pip install 'dagster>=1.12,<1.14'."
