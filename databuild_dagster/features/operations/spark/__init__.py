"""The work of the provided operations on Spark."""
