"""Checking allocations without trusting whoever found them, and carrying them out."""
