"""Parts of a round that are worked out when somebody looks, from columns that no longer change."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from apportion.instances.training import Outcome, Placement


class _Lazy:
    """Fills its fields on the first look; a policy pays for what it reads."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            build = None if name.startswith("__") else self.__dict__.pop("_build", None)
            if build is None:
                raise AttributeError(name)
            self.__dict__.update(build())
            return getattr(self, name)


class LazyPlacement(_Lazy, Placement):
    """A placement whose columns are laid out when they are read."""


class LazyOutcome(_Lazy, Outcome):
    """An outcome whose columns are worked out when they are read."""


def lazy_placement(build: Callable[[], dict[str, Any]]) -> Placement:
    """Make a placement of columns to come: ``job``, ``node`` and ``gpus``."""
    out = object.__new__(LazyPlacement)
    out.__dict__["_build"] = build
    return out


def lazy_outcome(start_s: float, end_s: float, build: Callable[[], dict[str, Any]]) -> Outcome:
    """Make an outcome of columns to come: ``work``, ``gpu_s`` and ``finished``."""
    out = object.__new__(LazyOutcome)
    out.__dict__.update(start_s=start_s, end_s=end_s, _build=build)
    return out
