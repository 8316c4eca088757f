"""Families of rounds: what the face has to know of each, and where to find it."""
