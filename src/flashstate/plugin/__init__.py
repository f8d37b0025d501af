"""FlashState inside vLLM: a scheduler subclass, a free-block queue, a stat logger. vLLM's own files stay untouched.

Imports core and vLLM. `register` is vLLM's general_plugins entry point; it does nothing unless FLASHSTATE is set.
"""

from flashstate.plugin.register import register

__all__ = ["register"]
