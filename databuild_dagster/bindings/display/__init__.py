"""The content of Dagster's pages: materializations, partition states, taints, checks and alerts."""
