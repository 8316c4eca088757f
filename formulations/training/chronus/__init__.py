"""Chronus (SoCC 2021): deadlines kept by reserved leases, best effort in between."""
