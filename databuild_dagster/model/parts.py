"""How files are dealt out to the parts of a lot (SPEC 10.4): whole files, into bins that weigh about the same."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heapreplace

#: Parts of one lot at most: each has its own call, manifest and files.
MAX_PARTS = 1000


def balanced(sizes: Mapping[str, int], n_bins: int) -> list[tuple[str, ...]]:
    """File to bytes, dealt into at most `n_bins` bins, none of them empty; the same for the same files.

    The largest first, each to the bin that is lightest by then (Graham's LPT rule): no two bins differ by more than
    the largest file, and the heaviest is at most a third heavier than the best there is.
    """
    assert n_bins >= 1, n_bins
    bins: list[list[str]] = [[] for _ in range(min(n_bins, len(sizes)))]
    # What counts besides the bytes is the number of files: those without a byte are dealt out too.
    weights = [(0, 0, number) for number in range(len(bins))]
    heapify(weights)
    for name in sorted(sizes, key=lambda each: (-sizes[each], each)):
        total_bytes, n_files, number = weights[0]
        bins[number].append(name)
        heapreplace(weights, (total_bytes + sizes[name], n_files + 1, number))
    return [tuple(sorted(each)) for each in bins]
