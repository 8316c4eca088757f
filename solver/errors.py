"""Errors of the solver room."""


class ModelError(ValueError):
    """The model, or a question put to it, is not well formed."""


class UnsupportedModelError(ModelError):
    """The model is sound, but of a class that the chosen back end does not solve."""


class NoSolutionError(RuntimeError):
    """Values were read from a solution that has none."""
