"""Measured runs: one record a request, read from what clients write, summed up, drawn over time and by session.

Reads records of `flashstate replay` and `flashstate demo`, of AIPerf and of `vllm bench serve`. May import numpy; of
ours, economics, files and the rest of report.
"""
