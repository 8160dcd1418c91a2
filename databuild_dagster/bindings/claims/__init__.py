"""The refs that a Dagster run asks for, the answers, and the wait for builds of other runs (rules 8)."""
