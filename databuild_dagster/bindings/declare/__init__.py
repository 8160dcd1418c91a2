"""What the author of an asset writes: signature, outcomes, gates, parts, filters, boundaries and subscriptions."""
