"""Results for people and for other tools: results.json, the table in the terminal, the one-file HTML report.

Takes figures and records of requests: who measured them, and how, is not its concern. Imports of ours: `files`,
`console`, and `economics` for what it all earns.
"""
