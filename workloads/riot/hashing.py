"""Hashes of 64 bits that depend on the value alone: the same in every process and for every packet size."""

from __future__ import annotations

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from numpy.typing import NDArray

Words = NDArray[np.uint64]

_WORD = 8
_SEED = np.uint64(0x9E3779B97F4A7C15)


def mix(values: Words) -> Words:
    """Every bit of the input changes about half of those of the output (the finaliser of SplitMix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def text_hashes(texts: pa.Array) -> Words:
    """A hash of each text's UTF-8 bytes and length; null counts as the empty text.

    Texts are padded to whole words, so that a round of arithmetic takes eight bytes of all texts at once. A text
    takes part only in the rounds of its own words: its hash does not depend on the texts beside it.
    """
    if not len(texts):
        return np.empty(0, dtype=np.uint64)
    texts = pc.fill_null(texts, "") if texts.null_count else texts
    lengths = pc.binary_length(texts).to_numpy(zero_copy_only=False).astype(np.uint64)
    hashes = mix(lengths ^ _SEED)
    words = -(-int(lengths.max()) // _WORD)
    if not words:
        return hashes
    padded = pc.ascii_rpad(texts, words * _WORD, " ")
    # ascii_rpad makes a new array: it starts at the first byte of its buffer.
    bytes_of_all = np.frombuffer(padded.buffers()[2], dtype="<u8", count=len(texts) * words)
    for number, word in enumerate(bytes_of_all.reshape(-1, words).T):
        mixed = mix(hashes * np.uint64(3) ^ word)
        hashes = np.where(lengths > np.uint64(number * _WORD), mixed, hashes)
    return hashes
