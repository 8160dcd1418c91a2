"""A code location in the store: datasets, partition keys, lots, and the engine of a Dagster instance."""
