"""Engines without this package read every snapshot of published tables: `make test-engines`."""
