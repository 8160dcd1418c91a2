"""The only place that knows SQL: the event log, its projections, the unit of work, and read-only queries."""
