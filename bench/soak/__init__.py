"""What survives when every kind of process is killed and frozen while wants come in: `python -m bench.soak`."""
