"""Tolerances of this room, each with its reason."""

from __future__ import annotations

HOST_RELATIVE = 1e-9
"""CPU cores and host memory are sums of a few fractions; this is far above their rounding error
and far below any real core or gibibyte."""

WORK_RELATIVE = 1e-9
"""Work is a rate times a difference of times of up to 1e9 s, so about 1e-10 of it is rounding."""

STUCK_INTERVALS = 1000
"""Decision intervals in a row without any work, with nothing left to wait for, after which a run
stops: memory may make a policy start a job late, but not this late."""

SAME_INSTANT = 1e-12
"""Relative difference below which two times are one: sums such as 43.8 + 7.3 and products such as
7 * 7.3 differ by an ulp, and a job that ends with a round must not be taken for one that does not."""

UNIFORMISATION_TERMS = 24
"""Terms of the series of a Poisson process with at most one event expected: what is left out is
less than 1 / 25!, far below rounding."""

NEGLIGIBLE = 1e-24
"""Weight of a term after which the series may end sooner: even doubled by 20 squarings, what is
left out is far below rounding."""

ROUNDING_OF_CHAINS = 1e-15
"""Some units in the last place. Every squaring of a transition matrix doubles the relative error,
so that it is charged once for each state, term and event expected."""

STIFFEST = 1e6
"""Expected events of a stage beyond which its time is too short to matter: the bracket that comes
from leaving it out, or from slowing it down to this, is about a millionth wide."""

WIDEST_CHAIN = 128
"""Stages beyond which squaring matrices costs more than stepping through events."""

ROUNDING_OF_TRANSFORMS = 1e-11
"""Fourier transforms of up to a million values between 0 and 1 lose less than this."""

LATTICE_STEPS = 2000
"""Steps to the target in which latencies with forks are looked at first."""

LATTICE_STEPS_MOST = 32000
"""Steps at which a claim that is still undecided is let stand: the bracket is then about 1e-5
wide for each fork that something follows."""

LATTICE_WORK_MOST = 20_000_000
"""Steps x calls that judging the claims of a round may take after the first look, some seconds."""

WORTH_SHARPENING = 0.1
"""Classes whose bracket blurs a sum by less than this part of what the widest does are left."""

CLAIM_TOLERANCE = 1e-9
"""Violation above its budget that a claim may have: planner and checker sum the same laws by
different methods, each good to 1e-12 or better; nobody can measure this."""

SLA_TEST_LEVEL = 0.01
"""A service misses its SLA in a round where so many violations would otherwise be this unlikely."""

ACCEPTED_DEVIATIONS = 4.0
"""Standard deviations within which a simulation agrees with its law: one in 16,000 is outside by
chance."""

LEAST_REQUESTS = 100_000
"""Requests of a service drawn in a round unless asked otherwise: a share of 5 % is then known to
0.3 % (four standard deviations)."""

MOST_REQUESTS = 5_000_000
"""Requests of a service drawn in a round at most, unless asked otherwise: a budget of a
hundred-thousandth would ask for more memory than it is worth."""

LEAST_VIOLATIONS = 100
"""Violations expected among the requests drawn where the SLA is just kept, for tight budgets."""
