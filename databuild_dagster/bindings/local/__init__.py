"""Builds in this process: the loop that ticks until the wants of a request have ended (rule 8.9)."""
