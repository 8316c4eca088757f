"""Models to PuLP and back, so that a rule can be added in PuLP's terms.

PuLP has one objective, one-sided rows and few letters for names. A problem made here therefore
remembers the model it was made from, and coming back only the differences are taken from PuLP:
columns keep their places, blocks and names, and objectives their priorities.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.sparse import coo_matrix

from apportion.solver.arrays import FloatArray, read_only
from apportion.solver.errors import ModelError
from apportion.solver.models.model import Model, Objective
from apportion.solver.models.named import blocks_of_names

_ORIGIN = "apportion_origin"
_LOWER = "_lower"
# what PuLP itself would replace, sometimes with a warning
_REPLACED = str.maketrans("-+[] >/", "_______")


def to_pulp(model: Model, *, objective: int = 0) -> Any:
    """Give a model as a ``pulp.LpProblem``.

    A row with two sides becomes two constraints, the second one's name ending in ``_lower``; a row
    without sides is left out. Names are changed to what PuLP allows; :func:`pulp_variables`
    finds variables by the model's own names.

    Parameters
    ----------
    model
        The model.
    objective
        Position of the objective that the problem gets. The others are kept aside until
        :func:`from_pulp`.

    Examples
    --------
    A rule that two jobs do not run together, added to a model in PuLP's terms:

    >>> from apportion.solver import Axis, ModelBuilder
    >>> builder = ModelBuilder("tiny")
    >>> x = builder.columns("x", 2, integer=True, axes=(Axis("job", ["a", "b"]),))
    >>> builder.objective("placed", column=x, value=1.0, maximise=True)
    >>> builder.objective("cost", column=x, value=[3.0, 2.0])
    >>> model = builder.build()
    >>> problem = to_pulp(model)
    >>> var = pulp_variables(problem, model)
    >>> problem += var["x[a]"] + var["x[b]"] <= 1, "not_together"
    >>> ruled = from_pulp(problem)
    >>> ruled.column_names(), ruled.row_names(), [one.name for one in ruled.objectives]
    (['x[a]', 'x[b]'], ['not_together'], ['placed', 'cost'])
    """
    pulp: Any = importlib.import_module("pulp")
    chosen = model.objectives[objective]
    sense = pulp.LpMaximize if chosen.maximise else pulp.LpMinimize
    problem = pulp.LpProblem(_pulp_names([model.name])[0], sense)
    variables = [
        _variable(pulp, problem, name, low, high, integer)
        for name, low, high, integer in zip(
            _pulp_names(model.column_names()),
            model.lower.tolist(),
            model.upper.tolist(),
            model.integer.tolist(),
            strict=True,
        )
    ]
    # terms of zero keep columns in the problem that nothing else names
    terms = dict(zip(variables, chosen.cost.tolist(), strict=True))
    problem.setObjective(pulp.LpAffineExpression(terms, constant=chosen.offset))
    for name, terms, low, high in _rows(model, variables):
        for word, sense, side in _sides(pulp, name, low, high):
            expression = pulp.LpAffineExpression(terms)
            problem.addConstraint(pulp.LpConstraint(expression, sense, word, side))
    setattr(problem, _ORIGIN, (model, objective))
    return problem


def pulp_variables(problem: Any, model: Model) -> dict[str, Any]:
    """Give the variables of a problem made by :func:`to_pulp`, by the model's own column names."""
    found = {str(variable.name): variable for variable in problem.variables()}
    names = model.column_names()
    pairs = zip(names, _pulp_names(names), strict=True)
    return {name: found[word] for name, word in pairs if word in found}


def from_pulp(problem: Any, *, like: Model | None = None, objective: int = 0) -> Model:
    """Give a ``pulp.LpProblem`` as a model.

    With a model to be like, columns and rows are matched by name. Its columns keep their order,
    blocks and names, and new ones follow; so do rows, and a row that is no longer in the problem
    keeps its place but has no sides. The problem's objective takes the place of the one that was
    given to PuLP; all others stay, in their order of priority.

    Without one, columns come in PuLP's order, which is by name, and rows in the order in which
    they were added.

    Parameters
    ----------
    problem
        The problem.
    like
        The model that the problem was made from. Remembered by problems of :func:`to_pulp`, but
        not by copies of them.
    objective
        With ``like``: position of the objective that the problem holds.

    Raises
    ------
    ModelError
        If the problem uses what a linear model has no place for (special ordered sets, other
        kinds of variables or constraints), or a number is not usable. The message names the place.
    """
    _refuse_unsupported(problem)
    remembered: tuple[Model, int] | None = getattr(problem, _ORIGIN, None)
    if like is not None:
        return _Return(problem, like, objective).model()
    if remembered is not None:
        return _Return(problem, *remembered).model()
    return _Return(problem, _nothing(str(problem.name)), 0).model()


def _nothing(name: str) -> Model:
    empty = np.empty(0)
    return Model(
        name=name,
        lower=empty,
        upper=empty,
        integer=empty.astype(np.bool_),
        indptr=np.zeros(1, dtype=np.int32),
        indices=empty.astype(np.int32),
        values=empty,
        row_lower=empty,
        row_upper=empty,
        objectives=(Objective("objective", empty),),
    )


def _pulp_names(names: Sequence[str]) -> list[str]:
    """Names that PuLP keeps as they are, unique."""
    words: list[str] = []
    taken: set[str] = set()
    for position, name in enumerate(names):
        word = name.translate(_REPLACED) or "_"
        while word in taken:
            word = f"{word}_{position}"
        taken.add(word)
        words.append(word)
    return words


def _variable(pulp: Any, problem: Any, name: str, low: float, high: float, integer: bool) -> Any:
    # the method is the newer way, and the only one that does not warn where both are there
    make = getattr(problem, "add_variable", pulp.LpVariable)
    return make(
        name,
        low if math.isfinite(low) else None,
        high if math.isfinite(high) else None,
        pulp.LpInteger if integer else pulp.LpContinuous,
    )


def _rows(
    model: Model, variables: list[Any]
) -> Iterable[tuple[str, dict[Any, float], float, float]]:
    ends, columns, values = model.indptr.tolist(), model.indices.tolist(), model.values.tolist()
    for row, name in enumerate(_pulp_names(model.row_names())):
        place = slice(ends[row], ends[row + 1])
        terms = {variables[j]: v for j, v in zip(columns[place], values[place], strict=True)}
        yield name, terms, float(model.row_lower[row]), float(model.row_upper[row])


def _sides(pulp: Any, name: str, low: float, high: float) -> list[tuple[str, int, float]]:
    if low == high:
        return [(name, pulp.LpConstraintEQ, low)]
    sides: list[tuple[str, int, float]] = []
    if math.isfinite(high):
        sides.append((name, pulp.LpConstraintLE, high))
    if math.isfinite(low):
        sides.append((name + _LOWER if sides else name, pulp.LpConstraintGE, low))
    return sides


def _refuse_unsupported(problem: Any) -> None:
    for kind in ("sos1", "sos2"):
        sets: Mapping[Any, Any] = getattr(problem, kind, None) or {}
        for name in sets:
            raise ModelError(f"PuLP problem {problem.name}: {kind} set {name} is not supported")
    for name, constraint in _constraints(problem):
        if not hasattr(constraint, "sense") or not hasattr(constraint, "items"):
            kind = type(constraint).__name__
            raise ModelError(f"PuLP problem {problem.name}: constraint {name} is a {kind}")
    for variable in problem.variables():
        if variable.cat not in ("Continuous", "Integer"):
            raise ModelError(f"PuLP variable {variable.name}: category {variable.cat!r}")


def _constraints(problem: Any) -> list[tuple[str, Any]]:
    """Give constraints with the names that the problem gave them; newer versions hide these."""
    held: Mapping[str, Any] | None = getattr(problem, "_constraints", None)
    return list((problem.constraints if held is None else held).items())


class _Return:
    """One way back: a problem laid over the model that it should be like."""

    def __init__(self, problem: Any, like: Model, position: int) -> None:
        if not 0 <= position < len(like.objectives):
            raise ModelError(f"objective {position}: model {like.name} has {len(like.objectives)}")
        self.problem, self.like, self.position = problem, like, position
        self.constraints = dict(_constraints(problem))
        variables = list(problem.variables())
        names = [str(variable.name) for variable in variables]
        old = {word: j for j, word in enumerate(_pulp_names(like.column_names()))}
        self.new_columns = [name for name in names if name not in old]
        new_blocks = blocks_of_names(self.new_columns, start=like.column_count)
        self.column_blocks = (*like.column_blocks, *new_blocks)
        self.place = {**old, **{n: like.column_count + j for j, n in enumerate(self.new_columns)}}
        self.variables = dict(zip(names, variables, strict=True))
        if len(self.variables) < len(names):
            double = next(name for name in names if names.count(name) > 1)
            raise ModelError(f"PuLP problem {problem.name}: two variables are named {double}")

    def model(self) -> Model:
        lower, upper, integer = self._columns()
        rows, row_lower, row_upper, new_rows = self._rows()
        entries = [self._entries(row, terms) for row, terms in enumerate(rows)]
        matrix = coo_matrix(
            (
                np.concatenate([values for _, _, values in entries] or [np.empty(0)]),
                (
                    np.concatenate([row for row, _, _ in entries] or [np.empty(0, np.int64)]),
                    np.concatenate([column for _, column, _ in entries] or [np.empty(0, np.int64)]),
                ),
            ),
            shape=(len(rows), lower.size),
        ).tocsr()
        matrix.eliminate_zeros()
        old_blocks = self.like.row_blocks
        return Model(
            name=self.like.name,
            lower=lower,
            upper=upper,
            integer=integer,
            indptr=matrix.indptr.astype(np.int32),
            indices=matrix.indices.astype(np.int32),
            values=matrix.data,
            row_lower=row_lower,
            row_upper=row_upper,
            objectives=self._objectives(lower.size),
            column_blocks=self.column_blocks,
            row_blocks=(*old_blocks, *blocks_of_names(new_rows, start=self.like.row_count)),
        )

    def _columns(self) -> tuple[FloatArray, FloatArray, Any]:
        more = len(self.new_columns)
        lower = np.append(self.like.lower, np.full(more, -np.inf))
        upper = np.append(self.like.upper, np.full(more, np.inf))
        integer = np.append(self.like.integer, np.zeros(more, dtype=np.bool_))
        for name, variable in self.variables.items():
            at = self.place[name]
            lower[at] = -np.inf if variable.lowBound is None else _number(variable.lowBound, name)
            upper[at] = np.inf if variable.upBound is None else _number(variable.upBound, name)
            integer[at] = variable.cat == "Integer"
        return lower, upper, integer

    def _rows(self) -> tuple[list[Any], FloatArray, FloatArray, list[str]]:
        """Constraint (or row number) that holds each row's terms, sides, and names of new rows."""
        like, left = self.like, dict(self.constraints)
        terms: list[Any] = []
        lower = np.full(like.row_count, -np.inf)
        upper = np.full(like.row_count, np.inf)
        for row, name in enumerate(_pulp_names(like.row_names())):
            first = left.pop(name, None)
            two_sided = -np.inf < like.row_lower[row] < like.row_upper[row] < np.inf
            second = left.pop(name + _LOWER, None) if two_sided else None
            given = [one for one in (first, second) if one is not None]
            for one in given:
                low, high = _interval(one, name)
                lower[row], upper[row] = max(lower[row], low), min(upper[row], high)
            if len(given) == 2 and dict(given[0].items()) != dict(given[1].items()):
                raise ModelError(
                    f"PuLP constraints {name} and {name}{_LOWER} are no longer one row"
                )
            terms.append(given[0] if given else row)
        sides = [_interval(one, name) for name, one in left.items()]
        terms.extend(left.values())
        return (
            terms,
            np.append(lower, [low for low, _ in sides]),
            np.append(upper, [high for _, high in sides]),
            list(left),
        )

    def _entries(self, row: int, terms: Any) -> tuple[Any, Any, FloatArray]:
        if isinstance(terms, int):
            place = slice(int(self.like.indptr[terms]), int(self.like.indptr[terms + 1]))
            columns, values = self.like.indices[place], self.like.values[place]
        else:
            items = list(terms.items())
            columns = np.array([self.place[str(v.name)] for v, _ in items], dtype=np.int64)
            values = np.array([_number(value, str(v.name)) for v, value in items], dtype=np.float64)
        return np.full(len(columns), row, dtype=np.int64), columns, values

    def _objectives(self, count: int) -> tuple[Objective, ...]:
        given = self.problem.objective
        cost = np.zeros(count)
        offset = 0.0
        if given is not None:
            for variable, value in given.items():
                cost[self.place[str(variable.name)]] += _number(value, str(variable.name))
            offset = _number(given.constant, "the objective's constant")
        old = self.like.objectives[self.position]
        # PuLP marks a maximisation by -1
        chosen = Objective(old.name, read_only(cost), self.problem.sense == -1, offset)
        padding = np.zeros(count - self.like.column_count)
        objectives = [
            replace(one, cost=read_only(np.append(one.cost, padding)))
            for one in self.like.objectives
        ]
        objectives[self.position] = chosen
        return tuple(objectives)


def _interval(constraint: Any, name: str) -> tuple[float, float]:
    side = 0.0 - _number(constraint.constant, name)
    return (
        -np.inf if constraint.sense < 0 else side,
        np.inf if constraint.sense > 0 else side,
    )


def _number(value: Any, where: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ModelError(f"PuLP: {value!r} at {where} is not a number") from None
