"""Operations: a job for each partition of a dataset, which survives the death of any process (rules 9)."""
