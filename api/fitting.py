"""Laws of latency from traces: what ``apportion fit`` does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from apportion.instances import InstanceError
from apportion.instances.files import PathLike
from apportion.results import Column, Table

if TYPE_CHECKING:
    from apportion.instances.microservices.fitted_model import FittedModel

_SHOWN = 5
"""Names in a note: more would hide the other notes."""


def fit(
    traces: Iterable[PathLike],
    *,
    out: PathLike | None = None,
    containers: Mapping[str, float] | None = None,
    sampling: float = 1.0,
    window_s: float = 60.0,
    peak_per_s: float | None = None,
    percentile: float = 0.95,
    estimator: str = "mean",
    shift: str = "minimum",
    strict: bool = False,
) -> FittedModel:
    """Fit the law of every microservice that traces show at two loads or more.

    Parameters
    ----------
    traces
        Files of Jaeger or OpenTelemetry (JSON) or Alibaba's call graphs, and beside them, where
        there are any, tables of containers and rates or Kubernetes' objects (JSON).
    out
        File that the model is written to.
    containers
        Containers of each microservice by name, before those of files; a microservice without
        counts as one container.
    sampling
        Share of the requests that were traced.
    window_s
        Loads are counted in windows of this length.
    peak_per_s
        Calls per second of the busiest container, for rates that are normalised.
    percentile
        The tail that Erms' two lines stand for.
    estimator
        ``"mean"`` (maximum likelihood) or ``"distribution"`` (least squares, as Derm).
    shift
        ``"minimum"``, ``"quantile"`` or ``"zero"``.
    strict
        True: a trace that cannot be understood is an error, not left out.

    Returns
    -------
    FittedModel
        Laws, Erms' lines, how well they fit, and who was refused, with the reason.

    Raises
    ------
    InstanceError
        On files that cannot be read, options out of range, and where no microservice can be
        fitted: there must be two different loads.
    """
    for name, value, most in (
        ("sampling", sampling, 1.0), ("percentile", percentile, 1.0), ("window", window_s, 1e9),
    ):  # fmt: skip
        if not 0.0 < value <= most or (name == "percentile" and value == most):
            raise InstanceError(f"fit: {name} = {value}: must lie above 0 and up to {most:g}")
    if peak_per_s is not None and not 0.0 < peak_per_s < float("inf"):
        raise InstanceError(f"fit: peak = {peak_per_s}: must be positive and finite")
    # what fits needs scipy.optimize, for which nobody else should wait
    fits: Any = import_module("apportion.instances.microservices.model_file")
    options: Any = import_module("apportion.instances.microservices.fit").FitOptions
    model: FittedModel = fits.fit_traces(
        list(traces), containers=containers, sampling=sampling, window_s=window_s,
        peak_per_s=peak_per_s, percentile=percentile, strict=strict,
        options=options(estimator=estimator, shift=shift),
    )  # fmt: skip
    if out is not None:
        fits.write_model(out, model)
    return model


def fit_table(model: FittedModel) -> Table:
    """List the laws with how well they fit; who was refused, and all warnings, as notes."""
    columns = [
        Column("microservice", "microservice"),
        Column("rate_at_rest_per_ms", "rate at rest (1/ms)", "ratio"),
        Column("rate_slope_per_ms", "slope (1/ms by call/s)", "ratio"),
        Column("shift_ms", "shift (ms)", "ratio"),
        Column("least_load_per_s", "from (calls/s)", "ratio"),
        Column("most_load_per_s", "to (calls/s)", "ratio"),
        Column("levels", "loads", "count"),
        Column("samples", "samples", "count"),
        Column("r_squared", "R2", "ratio"),
        Column("ks", "KS", "ratio"),
        Column("kl_mean", "KL", "ratio", "machines"),
        Column("kl_distribution", "KL, distribution", "ratio", "machines"),
        Column("lines_measured", "Erms' lines measured"),
    ]
    keys = [column.key for column in columns[1:-1]]
    rows: list[list[Any]] = []
    notes: list[str] = []
    for row, measured in zip(model.table(), model.linear_measured.tolist(), strict=True):
        values = [row[key] for key in keys]
        rows.append([row["microservice"], *values, "yes" if measured else "no"])
        notes += [f"{row['microservice']}: {warning}" for warning in row["warnings"]]
    refused = list((model.refused or {}).items())
    notes += [f"{name}: refused: {why}" for name, why in refused[:_SHOWN]]
    if len(refused) > _SHOWN:
        notes.append(f"and {len(refused) - _SHOWN} more were refused; --json names all")
    return Table("Laws of latency", columns, rows, [*notes, *model.warnings])
