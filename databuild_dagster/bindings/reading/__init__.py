"""Reading of instances, for users and steps: `read`, `table`, lookups, Spark sessions and frames."""
