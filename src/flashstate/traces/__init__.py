"""Recorded agent sessions: what was asked when, how long it was, and which prompts share which prefix.

`session` is the form in memory; each other module reads one file format into it. Imports nothing of ours.
"""
