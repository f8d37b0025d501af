"""Chunked prefill kernels of the recurrent layers that export a state from inside a chunk.

`base` holds the contract, `reference` its plain float64 form; `triton` and `cpu` the kernels that serve.
May import torch and triton; nothing of ours.
"""
