"""Recorded agent sessions: what was asked when, how long it was, and which prompts share which prefix.

`session` is the form in memory, `read` makes it of any format that we know, `*_writer` write it, `stats` describes it.
Imports `files` and `console`; `plot` draws with `report`.
"""
