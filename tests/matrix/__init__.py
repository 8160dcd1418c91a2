"""The package beside the oldest and newest versions of Python, Spark, Dagster and others: `make matrix`."""
