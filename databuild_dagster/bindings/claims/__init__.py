"""What a Dagster run asks for, what it is granted, and how it waits for what others build (SPEC 8)."""
