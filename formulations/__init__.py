"""One module per published system: a round becomes a program, a solution becomes a decision."""
