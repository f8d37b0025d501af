"""Tiny runnable hybrid models with random weights, and the size of a checkpoint from a model's config.

May import: numpy, tokenizers; of ours, the core alone. vLLM and torch are allowed, but not needed to
write a model.
"""
