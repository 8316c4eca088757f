"""Workloads drawn from a seed: arrivals, gangs, work, models and a law of throughput."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from apportion.instances.columns import Floats, Ints, Names
from apportion.instances.errors import InstanceError, nearest
from apportion.instances.streams import stream
from apportion.instances.tables import Value, check_values
from apportion.instances.training.cluster import Cluster
from apportion.instances.training.jobs import Jobs

SPEED = (1.0, 2.0, 2.7)
"""Relative speed of the first three GPU types where none is given."""

MODEL_STATE_GB: Mapping[str, float] = {
    "ResNet-50": 0.3,
    "VGG-16": 1.7,
    "DenseNet-121": 0.1,
    "BERT-base": 1.3,
    "GPT-2": 1.5,
    "GPT-Neo-1.3B": 15.6,
    "OPT-350M": 4.0,
}
"""Models and the state that moves with them: weights and two moments, 12 bytes a parameter."""

GENERATOR_KEYS: Mapping[str, Value] = {
    "jobs": Value("whole", "number of jobs", 0, 10_000_000),
    "load": Value("number", "GPU-seconds demanded over GPU-seconds there are", 0, above=True),
    "rate_per_h": Value("number", "jobs an hour, instead of load", 0, above=True),
    "arrivals": Value("text", "how jobs arrive", choices=("poisson", "bursty")),
    "burst_ratio": Value("number", "rate inside a burst over the rate outside", 1),
    "burst_share": Value("number", "part of the time that lies in bursts", 0, 0.99, True),
    "burst_s": Value("number", "mean length of a burst, seconds", 0, above=True),
    "gang_sizes": Value("wholes", "GPUs a job may ask for", 1, 1_000_000),
    "gang_shares": Value("numbers", "share of the jobs that ask for each", 0),
    "work_mu": Value("number", "mean of the logarithm of the epochs"),
    "work_sigma": Value("number", "standard deviation of the logarithm of the epochs", 0),
    "work_least": Value("number", "fewest epochs", 0, above=True),
    "work_most": Value("number", "most epochs", 0, above=True),
    "epoch_s": Value("number", "typical seconds of an epoch at speed 1", 0, above=True),
    "epoch_sigma": Value("number", "spread of that time from model to model", 0),
    "speed": Value("by_name", "relative speed of each GPU type", 0),
    "exponent_least": Value("number", "smallest exponent of a model on the speed"),
    "exponent_most": Value("number", "largest exponent of a model on the speed"),
    "gang_exponent": Value("number", "exponent of the gang on the throughput"),
    "models": Value("by_name", "models, with the gigabytes of state each moves", 0),
    "tenant_share": Value("by_name", "share of the jobs of each tenant", 0),
    "slo_share": Value("number", "share of the jobs that have deadlines, default 0", 0, 1),
    "soft_share": Value("number", "share of those whose value falls in steps, default 0", 0, 1),
    "slack_least": Value("number", "least first deadline, in durations of the job", 0, above=True),
    "slack_most": Value("number", "latest first deadline, in durations of the job", 0, above=True),
    "soft_factors": Value("numbers", "deadlines of a soft job, in first deadlines", 1),
    "soft_values": Value("numbers", "value of each; the first is that of hard jobs too", 0),
}
"""Keys of a generated workload in a scenario, and the ranges the constructor checks."""


@dataclass(frozen=True)
class Generator:
    """Parameters of a generated workload.

    Parameters
    ----------
    jobs
        Number of jobs.
    load, rate_per_h
        Offered load, or arrivals an hour instead; give at most one of them. The load is the
        GPU-seconds the jobs ask for, on GPUs of the cluster's mean speed, over the GPU-seconds
        the cluster has between two arrivals. Default: load 0.8.
    arrivals
        ``"poisson"``, or ``"bursty"``: Poisson arrivals whose rate jumps between two values
        after exponential times (a Markov-modulated process of two states).
    burst_ratio, burst_share, burst_s
        Rate in a burst over the rate outside, part of the time in bursts, mean length of a
        burst in seconds. The mean rate stays what ``load`` or ``rate_per_h`` say.
    gang_sizes, gang_shares
        GPUs asked for, and the share of the jobs that ask for each.
    work_mu, work_sigma, work_least, work_most
        Whole epochs, log-normal with these moments of the logarithm, clipped.
    epoch_s, epoch_sigma
        Median seconds of an epoch of the whole gang at speed 1, and the log-normal spread of it
        from model to model.
    speed
        Relative speed of each GPU type. Default: 1.0, 2.0, 2.7 in the order of the cluster's
        types; more than three types need it given.
    exponent_least, exponent_most
        A model of exponent e runs ``speed ** e`` times as fast as at speed 1; each model draws
        its e uniformly from this range, so that speed-ups differ.
    gang_exponent
        The throughput of a gang of d GPUs is ``d ** gang_exponent`` times that of one. Default
        0: who asks for more GPUs has as much more to compute.
    models
        Names, with the gigabytes of training state that move on a switch.
    tenant_share
        Share of the jobs of each tenant; default: the same for all.
    slo_share, soft_share
        Share of the jobs that have deadlines, and the share of these whose value falls from
        deadline to deadline; the others have one.
    slack_least, slack_most
        The first deadline lies this many durations after the arrival, uniform in the range. A
        duration is the work on the fastest type whose GPUs suffice for the gang; jobs that run
        nowhere stay without deadlines.
    soft_factors, soft_values
        Deadlines of a soft job in parts of the first one's time, from 1 rising, and the value of
        each, never rising. A hard job has the first of them.

    Raises
    ------
    InstanceError
        Naming the parameter and its value.

    Notes
    -----
    Gangs, epochs and speeds follow the emulation that FFT's re-implementation describes, where
    they are stated; ``epoch_s``, ``epoch_sigma``, the burst parameters and the sizes of the
    models are our own choice.
    """

    jobs: int = 100
    load: float | None = None
    rate_per_h: float | None = None
    arrivals: str = "poisson"
    burst_ratio: float = 5.0
    burst_share: float = 0.2
    burst_s: float = 3600.0
    gang_sizes: tuple[int, ...] = (1, 2, 4, 8)
    gang_shares: tuple[float, ...] = (0.6, 0.2, 0.15, 0.05)
    work_mu: float = 2.2
    work_sigma: float = 0.9
    work_least: float = 3.0
    work_most: float = 200.0
    epoch_s: float = 600.0
    epoch_sigma: float = 0.5
    speed: Mapping[str, float] | None = None
    exponent_least: float = 0.5
    exponent_most: float = 1.2
    gang_exponent: float = 0.0
    models: Mapping[str, float] = field(default_factory=lambda: MODEL_STATE_GB)
    tenant_share: Mapping[str, float] | None = None
    slo_share: float = 0.0
    soft_share: float = 0.0
    slack_least: float = 1.1
    slack_most: float = 2.0
    soft_factors: tuple[float, ...] = (1.0, 1.1, 1.2, 1.5)
    soft_values: tuple[float, ...] = (10.0, 8.0, 5.0, 2.0)

    def __post_init__(self) -> None:
        where = "workload"
        check_values(GENERATOR_KEYS, self.__dict__, where)
        if self.load is not None and self.rate_per_h is not None:
            raise InstanceError(f"{where}: give load or rate_per_h, not both")
        if len(self.gang_sizes) != len(self.gang_shares):
            raise InstanceError(
                f"{where}.gang_shares has {len(self.gang_shares)} values,"
                f" gang_sizes has {len(self.gang_sizes)}"
            )
        if not sum(self.gang_shares) > 0:
            raise InstanceError(f"{where}.gang_shares: at least one must be positive")
        for low, high in (
            ("work_least", "work_most"), ("exponent_least", "exponent_most"),
            ("slack_least", "slack_most"),
        ):  # fmt: skip
            least, most = cast(float, getattr(self, low)), cast(float, getattr(self, high))
            if least > most:
                raise InstanceError(f"{where}.{high} = {most}: is below {low} = {least}")
        if not self.models:
            raise InstanceError(f"{where}.models is empty")
        self._check_steps(where)

    def _check_steps(self, where: str) -> None:
        factors, values = self.soft_factors, self.soft_values
        if len(factors) != len(values):
            raise InstanceError(
                f"{where}.soft_values has {len(values)} values, soft_factors has {len(factors)}"
            )
        if not factors or factors[0] != 1:
            raise InstanceError(f"{where}.soft_factors = {list(factors)}: must start at 1")
        for name, steps, rule in (
            ("soft_factors", np.diff(factors) > 0, "must rise"),
            ("soft_values", np.diff(values) <= 0, "must not rise"),
        ):
            if not steps.all():
                raise InstanceError(f"{where}.{name} = {list(getattr(self, name))}: {rule}")


def generate_jobs(options: Generator, cluster: Cluster, tenants: Names, seed: int) -> Jobs:
    """Draw a workload.

    Parameters
    ----------
    options
        Distributions and laws.
    cluster
        GPU types the throughputs are for, and the GPUs the load refers to.
    tenants
        Names of the tenants.
    seed
        Root seed. Each purpose has its own stream: another distribution of gangs leaves the
        work of every job as it was.

    Returns
    -------
    Jobs
        In order of arrival, the first at 0.
    """
    n = options.jobs
    gang = _gangs(options, seed)
    work = _work(options, seed)
    names = list(options.models)
    model = stream(seed, "models").integers(len(names), size=n)
    throughput = _throughput(options, cluster, model, gang, seed)
    state = np.array([options.models[name] for name in names], dtype=np.float64)
    rate = _rate_per_s(options, cluster, gang, work, throughput)
    arrival = _arrivals(options, rate, seed)
    duration = _duration_s(cluster, gang, work, throughput)
    return Jobs(
        id=cast(Names, [f"job-{index}" for index in range(n)]),
        gang=gang,
        work=work,
        throughput_per_s=throughput,
        arrival_s=arrival,
        tenant=_tenants(options, tenants, seed),
        model=np.array(names, dtype=np.str_)[model],
        state_gb=state[model],
        **_deadlines(options, arrival, duration, seed),
    )


def _duration_s(cluster: Cluster, gang: Ints, work: Floats, throughput: Floats) -> Floats:
    """Seconds of each job on the fastest type that has room for it, or on the fastest at all."""
    roomy = gang[:, None] <= cluster.gpus
    best = np.where(roomy, throughput, 0.0).max(axis=1, initial=0.0)
    nowhere = best == 0
    best[nowhere] = throughput[nowhere].max(axis=1, initial=0.0)
    return np.divide(work, best, out=np.full(work.size, np.inf), where=best > 0)


def _deadlines(
    options: Generator, arrival_s: Floats, duration_s: Floats, seed: int
) -> dict[str, Any]:
    n = options.jobs
    slo = (stream(seed, "slo").random(n) < options.slo_share) & np.isfinite(duration_s)
    soft = slo & (stream(seed, "soft").random(n) < options.soft_share)
    slack = stream(seed, "slack").uniform(options.slack_least, options.slack_most, n)
    steps = np.where(soft, len(options.soft_factors), np.where(slo, 1, 0))
    offsets = np.concatenate(([0], np.cumsum(steps)))
    of = np.repeat(np.arange(n), steps)
    step = np.arange(of.size) - offsets[of]
    after_s = (slack * duration_s)[of] * np.array(options.soft_factors)[step]
    return {
        "slo": slo,
        "deadline_offsets": offsets,
        "deadline_s": arrival_s[of] + after_s,
        "deadline_value": np.array(options.soft_values, dtype=np.float64)[step],
    }


def _gangs(options: Generator, seed: int) -> Ints:
    shares = np.array(options.gang_shares, dtype=np.float64)
    sizes = np.array(options.gang_sizes, dtype=np.int64)
    return stream(seed, "gangs").choice(sizes, size=options.jobs, p=shares / shares.sum())


def _work(options: Generator, seed: int) -> Floats:
    drawn = stream(seed, "work").lognormal(options.work_mu, options.work_sigma, options.jobs)
    return np.clip(np.rint(drawn), options.work_least, options.work_most)


def _tenants(options: Generator, tenants: Names, seed: int) -> Ints:
    share = np.ones(tenants.size)
    if options.tenant_share is not None:
        known: list[str] = tenants.tolist()
        for name in options.tenant_share:
            if name not in known:
                hint = nearest(name, known)
                raise InstanceError(f"workload.tenant_share.{name}: unknown tenant{hint}")
        share = np.array([options.tenant_share.get(name, 0.0) for name in known])
    if not share.sum() > 0:
        raise InstanceError("workload.tenant_share: at least one must be positive")
    drawn = stream(seed, "tenants").choice(tenants.size, size=options.jobs, p=share / share.sum())
    return drawn


def _speed(options: Generator, types: list[str]) -> Floats:
    if options.speed is None:
        if len(types) > len(SPEED):
            raise InstanceError(
                f"workload.speed is missing: defaults exist for {len(SPEED)} GPU types,"
                f" the cluster has {len(types)}"
            )
        return np.array(SPEED[: len(types)])
    for name in options.speed:
        if name not in types:
            raise InstanceError(f"workload.speed.{name}: unknown GPU type{nearest(name, types)}")
    for name in types:
        if name not in options.speed:
            raise InstanceError(f"workload.speed.{name} is missing: the cluster has that GPU type")
    return np.array([options.speed[name] for name in types], dtype=np.float64)


def _throughput(options: Generator, cluster: Cluster, model: Ints, gang: Ints, seed: int) -> Floats:
    """Epochs a second of each job on each type: speed ** exponent / seconds of an epoch."""
    speed = _speed(options, cluster.types.tolist())
    draw = stream(seed, "throughput")
    count = len(options.models)
    exponent = draw.uniform(options.exponent_least, options.exponent_most, count)
    epoch_s = options.epoch_s * draw.lognormal(0.0, options.epoch_sigma, count)
    with np.errstate(divide="ignore"):  # speed 0 under a negative exponent is refused by Jobs
        per_model = speed[None, :] ** exponent[:, None] / epoch_s[:, None]
    per_model[:, speed == 0] = 0.0
    return per_model[model] * gang[:, None].astype(np.float64) ** options.gang_exponent


def _rate_per_s(
    options: Generator, cluster: Cluster, gang: Ints, work: Floats, throughput: Floats
) -> float:
    if options.rate_per_h is not None:
        return options.rate_per_h / 3600.0
    load = 0.8 if options.load is None else options.load
    gpus = int(cluster.gpus.sum())
    mean_speed = throughput @ (cluster.gpus / max(gpus, 1))
    if options.jobs and not mean_speed.all():
        raise InstanceError(
            f"workload.load = {load}: needs GPUs that the jobs run on; give rate_per_h instead"
        )
    demand_gpu_s = float((gang * work / mean_speed).mean()) if options.jobs else 1.0
    return load * gpus / demand_gpu_s


def _arrivals(options: Generator, rate_per_s: float, seed: int) -> Floats:
    if options.jobs == 0:
        return np.zeros(0)
    # arrivals of a unit Poisson process, the first at 0; then time runs as fast as the rate says
    units = np.cumsum(np.r_[0.0, stream(seed, "arrivals").exponential(size=options.jobs - 1)])
    if options.arrivals == "poisson":
        return units / rate_per_s
    return _modulated(options, units, rate_per_s, seed)


def _modulated(options: Generator, units: Floats, rate_per_s: float, seed: int) -> Floats:
    share = options.burst_share
    calm_rate = rate_per_s / (1.0 + share * (options.burst_ratio - 1.0))
    rates = np.array([calm_rate, calm_rate * options.burst_ratio])
    means = np.array([options.burst_s * (1.0 - share) / share, options.burst_s])
    draw = stream(seed, "bursts")
    times: list[Any] = [np.zeros(1)]
    passed: list[Any] = [np.zeros(1)]
    while passed[-1][-1] < units[-1]:
        lengths = (draw.exponential(size=(64, 2)) * means).ravel()  # calm, burst, calm, ...
        times.append(times[-1][-1] + np.cumsum(lengths))
        passed.append(passed[-1][-1] + np.cumsum(lengths * np.tile(rates, 64)))
    return np.interp(units, np.concatenate(passed), np.concatenate(times))
