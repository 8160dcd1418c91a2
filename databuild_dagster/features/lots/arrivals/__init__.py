"""Files that other programs have written become live instances (rule 10.6)."""
