"""Answers from the store alone, as records of JSON: why a ref is not built, wants, job runs, instances, orchestrators."""
