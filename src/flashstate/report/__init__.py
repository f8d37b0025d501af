"""Results for people and for other tools: results.json, the table in the terminal, the one-file HTML report.

Takes plain figures and imports nothing of ours but `files` and `console`: who measured them, and how, is not its
concern.
"""
