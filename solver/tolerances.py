"""Tolerances of the room, each with its reason.

All are relative; the scale that each refers to is named beside it.
"""

PRIMAL = 1e-6
"""Largest excess over a row's side or a column's bound, relative to the row's scale.

Back ends work to 1e-6 or 1e-7 on models that they scaled themselves.
"""

INTEGRALITY = 1e-6
"""Largest distance of an integer column from a whole number, before it is rounded."""

COMPARISON = 1e-9
"""Two numbers of our own arithmetic count as equal below this, relative to the larger one."""

PROOF = 1e-6
"""Smallest relative gap that can be told from zero.

Simplex codes stop at a dual tolerance of 1e-7, and leave objectives up to 1e-7 off.
"""

LARGEST_COEFFICIENT = 1e15
"""Larger coefficients lose the unit digit in double precision, and HiGHS rejects them."""

LARGEST_BOUND = 1e20
"""Back ends read finite bounds from here on as infinite; infinity must be written as such."""
