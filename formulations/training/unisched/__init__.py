"""UniSched (IEEE TC 2024): deadlines and latency, iterations and metrics, in one selector."""
