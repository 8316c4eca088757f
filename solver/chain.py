"""Back ends tried in order until one of them runs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from apportion.solver.arrays import FloatArray, dot
from apportion.solver.backends.backend import (
    Backend,
    Capabilities,
    Claim,
    RawResult,
    Request,
    run_backend,
)
from apportion.solver.errors import UnsupportedModelError
from apportion.solver.models.model import Model
from apportion.solver.proof.recheck import check_point

_log = logging.getLogger("apportion.solver")


@dataclass(eq=False)
class Chain:
    """Several back ends behind the contract of one, for one call of the solver.

    One that is missing, refuses the model or breaks down is left out from then on, with a warning.

    Parameters
    ----------
    members
        Back ends in the order in which they are tried, at least one.

    Attributes
    ----------
    skipped
        Which were left out, and why.
    """

    members: Sequence[Backend]
    skipped: list[str] = field(default_factory=list[str])
    _place: int = 0

    @property
    def name(self) -> str:
        """Name of the member whose turn it is, or of the last one."""
        return self.members[min(self._place, len(self.members) - 1)].name

    @property
    def capabilities(self) -> Capabilities:
        """What the member whose turn it is takes."""
        return self.members[min(self._place, len(self.members) - 1)].capabilities

    def available(self) -> bool:
        """Whether any member can run here."""
        return any(member.available() for member in self.members)

    def solve(self, model: Model, request: Request) -> RawResult:
        """Minimise the first objective of ``model`` on the first member that runs.

        A point that a member found before it broke down is kept, and the next one starts from it.
        """
        kept: FloatArray | None = None
        while self._place < len(self.members):
            raw = self._try(self.members[self._place], model, request)
            if raw is not None and raw.claim is not Claim.FAILED:
                return _with_kept(model, raw, kept)
            if raw is not None and raw.x is not None:
                kept, _ = check_point(model, raw.x)
                request = request if kept is None else replace(request, start=kept)
            self._place += 1
        failed = RawResult(Claim.FAILED, message=f"no back end runs: {'; '.join(self.skipped)}")
        return _with_kept(model, failed, kept)

    def _try(self, member: Backend, model: Model, request: Request) -> RawResult | None:
        if not member.available():
            self._skip(member, "cannot run here")
            return None
        try:
            raw = run_backend(member, model, request)
        except UnsupportedModelError as error:
            self._skip(member, str(error))
            return None
        if raw.claim is Claim.FAILED:
            self._skip(member, raw.message or "failed")
        return raw

    def _skip(self, member: Backend, reason: str) -> None:
        self.skipped.append(f"{member.name}: {reason}")
        _log.warning("%s is skipped: %s", member.name, reason)


def _with_kept(model: Model, raw: RawResult, kept: FloatArray | None) -> RawResult:
    """Put the kept point in place of none, or of a worse one without any proof."""
    if kept is None or raw.claim not in (Claim.POINT, Claim.NOTHING, Claim.FAILED):
        return raw
    objective = model.objectives[0]
    if raw.x is not None and objective.sign * dot(objective.cost, raw.x - kept) <= 0.0:
        return raw
    return replace(raw, claim=Claim.POINT, x=kept)
