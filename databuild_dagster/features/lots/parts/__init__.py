"""Calls for the parts of a lot, and the lot that they make together."""
