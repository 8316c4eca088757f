"""Ways to an optimum that use the shape of a problem, on top of one solver."""
