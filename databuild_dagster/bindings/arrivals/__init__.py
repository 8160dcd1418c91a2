"""Files that others have written become live instances (SPEC 10.6)."""
