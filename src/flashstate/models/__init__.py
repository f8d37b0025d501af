"""Tiny runnable hybrid models with random weights, and the size of a checkpoint from a model's config.

May import: numpy, tokenizers, typer and rich; of ours, core, console and files. vLLM and torch are allowed, but not
needed to write a model.
"""
