"""Gavel (OSDI 2020): policies that share types by fractions of time, and its leases."""
