"""The recurrence of `flashstate.kernels.base` on CPUs, in C++, compiled at first use with the user's compiler.

It has no tile grid: exports, warm resumes and splits have the uninterrupted run's bits at every offset.
May import torch and flashstate.kernels; nothing else of ours.
"""

from flashstate.kernels.cpu.build import CompileError
from flashstate.kernels.cpu.forward import chunk_forward, chunk_forward_in_pool

__all__ = ["CompileError", "chunk_forward", "chunk_forward_in_pool"]
