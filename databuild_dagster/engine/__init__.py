"""Commands, the orchestrator's tick, and leases. Imports the store, neither Dagster nor Spark."""
