"""Commands that compare instances."""
