"""The declarations of an asset's author: signature, outcomes, gates, parts, filters, boundaries, subscriptions."""
