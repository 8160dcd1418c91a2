"""New York's flights of 2013: the raw data of `definitions.py`, and a second example in which they arrive as files."""
