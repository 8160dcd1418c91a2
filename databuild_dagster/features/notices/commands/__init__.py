"""`databuild metrics`, for people and for Prometheus."""
