"""Leases of equal length with deadlines: plans, their bounds, and admission."""
