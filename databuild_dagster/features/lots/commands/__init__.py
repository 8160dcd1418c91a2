"""Commands about lots and arcs."""
