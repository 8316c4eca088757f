"""Questions to a round and its answer: why, what if, and what is a GPU worth."""
