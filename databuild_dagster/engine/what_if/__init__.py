"""Questions about a future, put to a copy in memory, on which the rules and the ticks run (rule 8.10)."""
