"""Operations over a whole dataset as keys of the meta storage (rules 9). Pure: the engine decides who reads, and when."""
