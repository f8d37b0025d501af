"""Engines side by side: the same agents, model, cache and block size, in turns, at several loads.

`flashstate demo` starts its servers with the parts of this package.
"""
