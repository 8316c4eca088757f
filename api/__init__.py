"""Scheduling rounds as optimisation models: compiled, solved in time, checked, carried out."""
