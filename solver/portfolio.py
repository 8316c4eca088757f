"""Which back ends ``backend="auto"`` means: a table to read and to change.

The first case that fits a model gives the back ends to try, in order. Figures are CPU seconds on 2
cores. Placement here means that, apart from a few long rows, no column is in two rows, as where
jobs pick at most one type and types have capacities. Simplex is at its best there, and at its
worst on contended fairness, where jobs are tied to a common level by rows of their own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from apportion.solver.backends.backend import Backend
from apportion.solver.backends.cbc import Cbc
from apportion.solver.backends.cpsat import CpSat
from apportion.solver.backends.features import Features, Kind
from apportion.solver.backends.glop import Glop
from apportion.solver.backends.highs import Highs
from apportion.solver.backends.scip import Scip
from apportion.solver.models.model import Model


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the table.

    Attributes
    ----------
    name
        Name of the case.
    kinds
        Classes of models it is for.
    use
        Back ends with their options, in the order in which they are tried.
    reason
        What was measured.
    most_nonzeros
        Largest model it is for.
    placement
        ``True``: for placement only.
    """

    name: str
    kinds: tuple[Kind, ...]
    use: tuple[Backend, ...] = field(repr=False)
    reason: str
    most_nonzeros: float = math.inf
    placement: bool = False

    def fits(self, features: Features) -> bool:
        """Whether the case is for such a model."""
        return (
            features.kind in self.kinds
            and features.nonzeros <= self.most_nonzeros
            and (not self.placement or features.placement)
        )


PORTFOLIO: tuple[Case, ...] = (
    Case(
        "placement LP",
        ("lp",),
        use=(Glop(dual=True), Highs("simplex"), Cbc()),
        placement=True,
        reason="1000 x 8: GLOP dual .018, primal .057, HiGHS simplex .028; 4000 x 8: .037, .075,"
        " .12 to .16, interior point .18 to .27; 16384 x 8: .32, .38, 1.45, 1.34; 16384 x 12 of 64:"
        " .79, 1.6, 1.5, 2.7",
    ),
    Case(
        "small LP",
        ("lp",),
        use=(Glop(), Highs("simplex"), Cbc()),
        most_nonzeros=20_000,
        reason="GLOP and HiGHS simplex tie up to 1024 jobs x 6 types (.049 and .038); GLOP starts"
        " faster",
    ),
    Case(
        "contended LP",
        ("lp",),
        use=(Highs("ipm"), Glop(), Highs("simplex")),
        reason="max-min at 20 % capacity, 4096 x 6: interior point with crossover .56, GLOP .71,"
        " HiGHS simplex 2.8; 16384 x 6: 4.8, unfinished, 82",
    ),
    Case(
        "MILP",
        ("milp", "whole"),
        use=(Highs(), Scip(), Cbc()),
        most_nonzeros=60_000,
        reason="leases 200 x 24 to 1e-3: HiGHS .66, SCIP 1.2, CBC 3.5; choice of 20 for 200 jobs:"
        " .17, .35, .47, CP-SAT .31; for 1000 jobs all take 2.2 to 3.0",
    ),
    Case(
        "large placement in whole numbers",
        ("whole",),
        use=(CpSat(), Highs(), Cbc()),
        placement=True,
        reason="choice of 20 for 5000 jobs: CP-SAT has a plan after 3.2 and the optimum after 7.6"
        " a thread, CBC after 13.5 and 17.6, HiGHS after 20.5 and 32.8, SCIP no good one",
    ),
    Case(
        "large MILP",
        ("milp", "whole"),
        use=(Highs(), Scip(), Cbc()),
        reason="leases 800 x 48 to 1e-3: SCIP 8.8, HiGHS 11.4 (first plan 1.65 and .26), CBC and"
        " CP-SAT not within the limit; choice of 29 for 2048 jobs: HiGHS 3.9, SCIP 6.9, CBC 11.5",
    ),
)
"""The cases, in the order in which they are looked at; the last ones leave no model without."""


def case_for(model: Model) -> Case:
    """First case of :data:`PORTFOLIO` that fits a model."""
    features = Features(model)
    return next(case for case in PORTFOLIO if case.fits(features))
