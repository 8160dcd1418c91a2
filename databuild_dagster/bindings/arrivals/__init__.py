"""Files that other programs have written become live instances (SPEC 10.6)."""
