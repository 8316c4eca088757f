"""Fair schedulers that the others are measured against."""

from apportion.formulations.training.peers.allox import AlloX
from apportion.formulations.training.peers.drf import DRF
from apportion.formulations.training.peers.gandiva_fair import GandivaFair
from apportion.formulations.training.peers.shockwave import Shockwave
from apportion.formulations.training.peers.themis import Themis

__all__ = ["DRF", "AlloX", "GandivaFair", "Shockwave", "Themis"]
