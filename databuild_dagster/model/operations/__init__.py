"""Operations over a whole dataset as keys of the meta storage (SPEC 9). Pure: the engine decides who reads, and when."""
