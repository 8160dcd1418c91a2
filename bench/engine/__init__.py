"""What the engine costs, against what its database costs, in the same run. `python -m bench.engine --help`."""
