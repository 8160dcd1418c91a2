"""The `databuild` command: reads by queries, changes by commands, builds by ticks in its own process."""
