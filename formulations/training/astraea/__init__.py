"""Astraea (TPDS 2022): long-term GPU-time fairness of tenants and jobs, with quotas."""
