"""Derm: fewest containers for which every SLA holds in probability."""
