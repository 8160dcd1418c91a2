"""`databuild ledger metrics`, for people and for Prometheus."""
