"""Discrete-event replay of recorded sessions against the classes of `core`, with counted blocks.

No policy logic of its own. Imports core, traces and models; never vLLM or torch.
"""
