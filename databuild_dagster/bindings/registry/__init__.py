"""A code location as the store knows it: datasets, partition keys, lots, and the engine of a Dagster instance."""
