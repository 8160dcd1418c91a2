"""Pages and an HTTP API about the build state, inside Dagster's web server (docs/decisions/0046-pages.md)."""
