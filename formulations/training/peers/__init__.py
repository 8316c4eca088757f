"""Schedulers of others that published systems are measured against."""

from apportion.formulations.training.peers.allox import AlloX
from apportion.formulations.training.peers.drf import DRF
from apportion.formulations.training.peers.elasticflow import ElasticFlow
from apportion.formulations.training.peers.gandiva_fair import GandivaFair
from apportion.formulations.training.peers.shockwave import Shockwave
from apportion.formulations.training.peers.tetrisched import TetriSched
from apportion.formulations.training.peers.themis import Themis

__all__ = ["DRF", "AlloX", "ElasticFlow", "GandivaFair", "Shockwave", "TetriSched", "Themis"]
