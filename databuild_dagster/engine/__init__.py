"""The one door for change, the orchestrator's tick, and leases. Knows the store; not Dagster, not Spark."""
