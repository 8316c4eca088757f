"""What is proved of an answer: checks, bounds, certificates, conflicts, repairs and prices."""
