"""A helper in a module of the project's own, which Spark's Python workers cannot import."""


def count_letters(word: str) -> int:
    return len(word)
