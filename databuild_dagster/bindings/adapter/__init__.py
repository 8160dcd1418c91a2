"""Access to Dagster itself: private names, tags, asset keys, and settings of its processes."""
