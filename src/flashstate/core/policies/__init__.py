"""Eviction policies: one small class a file. Importing this package registers every file in it.

Adding a policy = adding a file with a `Policy` subclass that has a `name`.
"""

from importlib import import_module
from pkgutil import iter_modules

from flashstate.core.policies.base import Policy, PolicySettings, Rank

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = ["Policy", "PolicySettings", "Rank", "make_policy", "policy_names"]


def policy_names() -> list[str]:
    """Names `make_policy` knows."""
    return sorted(Policy.registry)


def make_policy(name: str, settings: PolicySettings | None = None) -> Policy:
    """The policy called `name`. Raises ValueError for an unknown one."""
    if name not in Policy.registry:
        raise ValueError(f"eviction policy {name!r}: unknown; one of {', '.join(policy_names())}")
    return Policy.registry[name](settings or PolicySettings())
