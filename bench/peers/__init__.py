"""The projects of the peers over the example's flights, and the command that measures them: `python -m bench.peers`."""
