"""The published distributions, built and used in empty environments: `make package`."""
