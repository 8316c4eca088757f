"""All auditors over the same users."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from apportion.executor.training.records import Run
from apportion.instances import InstanceError
from apportion.instances.errors import nearest
from apportion.instances.training import TrainingRound
from apportion.results.auditing import envy as _envy
from apportion.results.auditing import evenness as _evenness
from apportion.results.auditing import pareto as _pareto
from apportion.results.auditing import planned_finish as _finish
from apportion.results.auditing import sharing_incentive as _incentive
from apportion.results.auditing import truthfulness as _truth
from apportion.results.auditing.audited import AuditedUsers, users_of_run
from apportion.results.auditing.findings import Audit, Finding
from apportion.solver import Budget, Solver

PROPERTIES = (
    _pareto.CAPACITY,
    _envy.NAME,
    _incentive.NAME,
    _pareto.NAME,
    _truth.NAME,
    _finish.NAME,
    _evenness.JAIN,
    _evenness.PRICE,
)
"""What can be asked, in the order it is told."""

NOT_OF_LEASES = "leases of one round do not tell when a waiting job would end"
NOT_OF_RUN = "a run cannot be asked again, see the metrics of the run"
NO_PROBE = "not probed: no factors were given"


def audit_users(
    users: AuditedUsers,
    policy: str,
    *,
    asked: Iterable[str] | None = None,
    solver: Solver | None = None,
    budget: Budget | None = None,
    round_: TrainingRound | None = None,
    probe: tuple[_truth.Ask, Sequence[float]] | None = None,
    notes: Sequence[str] = (),
) -> Audit:
    """Audit users that are at hand.

    Parameters
    ----------
    users
        Who is audited.
    policy
        Name of who decided, for the title.
    asked
        Properties and measures, see ``PROPERTIES``; default: all.
    solver, budget
        For the LP of Pareto efficiency and the probe.
    round_
        The round, for what needs the jobs; None for a run.
    probe
        How to have lies decided, and by what factors; None: truthfulness is not probed.
    notes
        What a reader should know beside the users' own notes.

    Raises
    ------
    InstanceError
        On an unknown property, or an unusable factor.
    """
    chosen = set(PROPERTIES) if asked is None else set(asked)
    for name in sorted(chosen - set(PROPERTIES)):
        raise InstanceError(f"audit: property {name!r} is not known{nearest(name, PROPERTIES)}")
    found: Mapping[str, Callable[[], Finding]] = {
        _pareto.CAPACITY: lambda: _pareto.within_capacity(users),
        _envy.NAME: lambda: _envy.envy(users),
        _incentive.NAME: lambda: _incentive.sharing_incentive(users),
        _pareto.NAME: lambda: _pareto.pareto(users, solver=solver, budget=budget),
        _truth.NAME: lambda: _truth_of(users, round_, probe, budget),
        _finish.NAME: lambda: _finish_of(users, round_),
        _evenness.JAIN: lambda: _evenness.evenness(users),
        _evenness.PRICE: lambda: _evenness.price_of_fairness(users),
    }
    return Audit(
        policy=policy,
        of=users.of,
        findings=tuple(found[name]() for name in PROPERTIES if name in chosen),
        utility=dict(zip(users.name.tolist(), users.utility.tolist(), strict=True)),
        notes=(*users.notes, *notes),
    )


def _truth_of(
    users: AuditedUsers,
    round_: TrainingRound | None,
    probe: tuple[_truth.Ask, Sequence[float]] | None,
    budget: Budget | None,
) -> Finding:
    if round_ is None:
        return Finding(_truth.NAME, None, words=NOT_OF_RUN)
    if probe is None or not probe[1]:
        return Finding(_truth.NAME, None, words=NO_PROBE)
    return _truth.truthfulness(users, round_, probe[0], probe[1], budget=budget)


def _finish_of(users: AuditedUsers, round_: TrainingRound | None) -> Finding:
    if round_ is None:
        return Finding(_finish.NAME, None, words=NOT_OF_RUN)
    if users.of != "planned shares":
        return Finding(_finish.NAME, None, words=NOT_OF_LEASES)
    return _finish.planned_finish(users, round_)


def audit_run(
    run: Run,
    start_s: float,
    end_s: float,
    *,
    asked: Iterable[str] | None = None,
    solver: Solver | None = None,
) -> Audit:
    """Audit what jobs really held, on average over an interval they were all there for.

    Parameters
    ----------
    run
        Records of the executor.
    start_s, end_s
        The interval. Jobs that arrived or ended within it take no part.
    asked
        Properties and measures; default: all.
    solver
        For the LP of Pareto efficiency.

    Raises
    ------
    InstanceError
        If the interval has no length, or on an unknown property.
    """
    users = users_of_run(run, start_s, end_s)
    return audit_users(users, run.policy, asked=asked, solver=solver)
