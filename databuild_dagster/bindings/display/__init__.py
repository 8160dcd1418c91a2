"""What Dagster's pages show: materializations, partition states, taints, checks and alerts."""
