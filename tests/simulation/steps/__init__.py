"""The steps of `test_naive.py`, by subject: each gives one command to the engine and to the plain model."""
