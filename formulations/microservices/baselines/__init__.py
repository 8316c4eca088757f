"""Rules of thumb and peers under the same contract."""

from apportion.formulations.microservices.baselines.autopilot import Autopilot
from apportion.formulations.microservices.baselines.budgets import GrandSlam, Rhythm
from apportion.formulations.microservices.baselines.firm import Firm
from apportion.formulations.microservices.baselines.hpa import HPA
from apportion.formulations.microservices.baselines.sinan import Sinan
from apportion.formulations.microservices.baselines.static_worst import StaticWorst
from apportion.formulations.microservices.baselines.ursa import Ursa

__all__ = [
    "HPA",
    "Autopilot",
    "Firm",
    "GrandSlam",
    "Rhythm",
    "Sinan",
    "StaticWorst",
    "Ursa",
]
