"""How users and steps read instances: `read`, `table`, lookups, Spark sessions and frames."""
