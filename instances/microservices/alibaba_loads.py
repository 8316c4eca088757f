"""Containers and call rates of Alibaba's traces: the tables MSResource, MSRTQps and MSRTMCR."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from apportion.instances.columns import Ints
from apportion.instances.errors import InstanceError
from apportion.instances.files import PathLike, naming
from apportion.instances.microservices.csv_blocks import BLOCK_ROWS, blocks, header
from apportion.instances.microservices.loads import Loads

RESOURCE = {
    "timestamp": ("timestamp",), "msname": ("msname",), "msinstanceid": ("msinstanceid",),
    "cpu": ("cpu_utilization", "instance_cpu_usage"),
    "memory": ("memory_utilization", "instance_memory_usage"),
}  # fmt: skip
RATES_LONG = {
    "timestamp": ("timestamp",), "msname": ("msname",), "msinstanceid": ("msinstanceid",),
    "metric": ("metric", "metrics"), "value": ("value",),
}  # fmt: skip
RATES_WIDE = {
    "timestamp": ("timestamp",), "msname": ("msname",), "msinstanceid": ("msinstanceid",),
    "providerrpc_mcr": ("providerrpc_mcr",), "http_mcr": ("http_mcr", ""),
    "consumermq_mcr": ("consumermq_mcr", ""),
}  # fmt: skip

SERVED = ("providerrpc_mcr", "http_mcr", "consumermq_mcr")
"""Metrics that count calls a container serves; the others count calls it makes."""

_KEY = ["timestamp", "msname"]


def read_containers(paths: Iterable[PathLike], *, block_rows: int = BLOCK_ROWS) -> Any:
    """Count the containers of each microservice in each minute.

    Parameters
    ----------
    paths
        Files of MSResource.
    block_rows
        Rows read at once.

    Returns
    -------
    DataFrame
        Columns ``timestamp`` (ms), ``msname``, ``containers``, and the means of ``cpu`` and
        ``memory`` over them, which are shares of what a container has.
    """
    parts: list[Any] = []
    for path in paths:
        for block in blocks(path, RESOURCE, "a table of Alibaba's containers", rows=block_rows):
            with naming(path):
                table = _keyed(block)
                table["cpu"], table["memory"] = block.numbers("cpu"), block.numbers("memory")
            table["containers"] = 1.0
            parts.append(table.groupby(_KEY, as_index=False).sum())
    if not parts:
        raise InstanceError("no file of containers was given")
    whole = pd.concat(parts).groupby(_KEY, as_index=False).sum()
    for name in ("cpu", "memory"):
        whole[name] /= whole["containers"]
    return whole


def read_loads(
    rates: Iterable[PathLike],
    resources: Iterable[PathLike] = (),
    *,
    peak_per_s: float | None = None,
    block_rows: int = BLOCK_ROWS,
) -> Loads:
    """Read the load on a container of each microservice in each minute.

    Parameters
    ----------
    rates
        Files of MSRTQps (2021) or MSRTMCR (2022): calls per second of each container.
    resources
        Files of MSResource, for the number of containers and their use of CPU and memory; without
        them those are counted that report a rate.
    peak_per_s
        Calls per second to which the largest load of a container is scaled. Required in 2022,
        whose rates are normalised to lie between 0 and 1.
    block_rows
        Rows read at once.

    Returns
    -------
    Loads
        One row a microservice and minute.

    Raises
    ------
    InstanceError
        On missing columns, on numbers that are none, and for normalised rates without a peak.
    """
    parts: list[Any] = []
    for path in rates:
        with naming(path):
            wide = "providerrpc_mcr" in [name.lower() for name in header(path)]
            if wide and peak_per_s is None:
                raise InstanceError(
                    "the rates of 2022 are normalised: say how many calls per second the busiest"
                    " container serves (peak_per_s)"
                )
        parts.extend(_rate_parts(path, wide, block_rows))
    if not parts:
        raise InstanceError("no file of rates was given")
    whole = pd.concat(parts).groupby(_KEY, as_index=False).sum()
    if "count_0" in whole:  # long: one row a metric, so that containers are the most of any metric
        whole["containers"] = whole[[f"count_{at}" for at in range(len(SERVED))]].max(axis=1)
    resources = list(resources)
    use = np.full((2, len(whole)), np.nan)
    if resources:
        counted = read_containers(resources, block_rows=block_rows)
        whole = whole.drop(columns="containers").merge(counted, on=_KEY, how="inner")
        use = whole[["cpu", "memory"]].to_numpy().T
    load = whole["calls"].to_numpy() / np.maximum(whole["containers"].to_numpy(), 1.0)
    if peak_per_s is not None:
        top = float(load.max(initial=0.0))
        load = load * (peak_per_s / top if top > 0 else 0.0)
    return Loads.of(
        start_ms=whole["timestamp"].to_numpy(dtype=np.float64),
        microservice=whole["msname"].to_numpy(dtype=object),
        load_per_s=load,
        containers=whole["containers"].to_numpy(dtype=np.float64),
        cpu=use[0],
        memory=use[1],
        window_ms=60_000.0,
    )


def _lower(coded: tuple[Ints, list[str]]) -> NDArray[Any]:
    codes, known = coded
    return np.array([name.lower() for name in known], dtype=object)[codes]


def _keyed(block: Any) -> Any:
    return pd.DataFrame({"timestamp": block.numbers("timestamp"), "msname": block.text("msname")})


def _rate_parts(path: PathLike, wide: bool, rows: int) -> Iterable[Any]:
    for block in blocks(path, RATES_WIDE if wide else RATES_LONG, "a table of rates", rows=rows):
        with naming(path):
            table = _keyed(block)
            if wide:
                here = [name for name in SERVED if name in block]
                table["calls"] = sum(
                    np.nan_to_num(block.numbers(name, empty=True)) for name in here
                )
                table["containers"] = 1.0
            else:
                metric = _lower(block.coded("metric"))
                value = np.nan_to_num(block.numbers("value", empty=True))
                table["calls"] = np.where(np.isin(metric, SERVED), value, 0.0)
                for at, name in enumerate(SERVED):
                    table[f"count_{at}"] = (metric == name).astype(np.float64)
        yield table.groupby(_KEY, as_index=False).sum()
