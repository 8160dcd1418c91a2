"""Helpers that the tests share: a hand-turned clock, ids in order, a small catalog, doubles of the ports, and a world."""
