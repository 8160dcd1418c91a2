"""Pages and an HTTP API about the build state, inside Dagster's web server (docs/decisions/faces.md#decision-0046)."""
