"""A function's own code as a short text: what built an instance, where its author has given no code version."""

import inspect
from hashlib import sha256
from types import CodeType
from typing import Any


def code_digest(function: Any) -> str | None:
    """Another text as soon as the function's own code is another, for an asset that tells no code version.

    What it calls is not looked at. None for what is no function.
    """
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return None
    digest, left = sha256(), [code]
    while left:
        each = left.pop()
        digest.update(repr((each.co_code, each.co_names, each.co_varnames)).encode())
        for const in each.co_consts:
            if isinstance(const, CodeType):
                left.append(const)
            else:
                digest.update(_text_of_constant(const).encode())
    return f"code-sha256:{digest.hexdigest()}"


def _text_of_constant(const: Any) -> str:
    """The order of a set's members is another one in each process."""
    if isinstance(const, frozenset):
        return f"frozenset({sorted(map(_text_of_constant, const))})"
    return repr(const)
