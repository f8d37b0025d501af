"""flashstate: resume a hybrid LLM at the exact token where its last turn ended, on an unmodified vLLM.

Importing this package imports none of its parts, and neither vLLM nor torch.
"""

__version__ = "0.1.0"
