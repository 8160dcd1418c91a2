"""The engine's ticks as sensors and Dagster runs, and the duties around a tick (rules 11)."""
