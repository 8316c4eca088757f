"""Random numbers by counter: a number that depends on its keys alone, not on what was drawn before.

A stream hands out its numbers in order, so one reader more moves those of everybody behind it.
Here each number is a mixture of a seed and whole-number keys (job, iteration, repetition): it can
be asked for in any order, any number of times, for whole columns at once.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from apportion.instances.columns import Floats, Names

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)

Keys = NDArray[np.uint64]


def keys_of(ids: Names) -> Keys:
    """Turn names into keys that are theirs wherever they stand, shape (n,)."""
    digests = (hashlib.blake2b(name.encode(), digest_size=8).digest() for name in ids.tolist())
    return np.array([int.from_bytes(digest, "little") for digest in digests], dtype=np.uint64)


def uniforms(seed: int, purpose: str, *keys: Any) -> Floats:
    """Uniform numbers in (0, 1), one for each combination of keys.

    Parameters
    ----------
    seed
        Root seed.
    purpose
        What they are for: other purposes get unrelated numbers.
    keys
        Arrays of whole numbers that broadcast together.

    Notes
    -----
    Each key is added to the state, which then goes through the finaliser of SplitMix64 (Steele,
    Lea and Flood, OOPSLA 2014).
    """
    state = keys_of(np.array([f"{purpose}/{seed}"]))
    for key in keys:
        column = np.atleast_1d(np.asarray(key))
        if column.dtype != np.uint64:
            column = column.astype(np.int64).view(np.uint64)
        state = _mixed(state + _STEP + _mixed(column))
    top = (state >> np.uint64(11)).astype(np.float64)  # the 53 bits a float holds
    return (top + 0.5) * 2.0**-53


def normals(seed: int, purpose: str, *keys: Any) -> Floats:
    """Standard normal numbers, one for each combination of keys; see ``uniforms``."""
    return ndtri(uniforms(seed, purpose, *keys))


def _mixed(state: Keys) -> Keys:
    """Spread every bit of the state over all of them (arithmetic is modulo 2 ** 64)."""
    state = (state ^ (state >> np.uint64(30))) * _FIRST
    state = (state ^ (state >> np.uint64(27))) * _SECOND
    return state ^ (state >> np.uint64(31))
