"""Placements: where checkpoints are taken, one small class a file. Importing this package registers them all.

Adding a placement = adding a file with a `Placement` subclass that has a `name`.
"""

from importlib import import_module
from pkgutil import iter_modules

from flashstate.core.placement.base import Placement, Prompt, Spot

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = ["Placement", "Prompt", "Spot", "make_placement", "placement_names"]


def placement_names() -> list[str]:
    """Names `make_placement` knows."""
    return sorted(Placement.registry)


def make_placement(name: str) -> Placement:
    """The placement called `name`. Raises ValueError for an unknown one."""
    if name not in Placement.registry:
        raise ValueError(f"placement {name!r}: unknown; one of {', '.join(placement_names())}")
    return Placement.registry[name]()
