"""Synthetic sessions: `fit` makes small parameters of recorded ones, `generate` makes any number of new ones.

`claude_code.json` is the fit to public traces. Imports the trace forms of `flashstate.traces` only.
"""
