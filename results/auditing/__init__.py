"""Auditors of fairness: who is audited, what a bundle is worth, and which properties hold."""
