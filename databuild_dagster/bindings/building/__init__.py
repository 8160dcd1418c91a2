"""The step that every build passes, and the jobs of operations."""
