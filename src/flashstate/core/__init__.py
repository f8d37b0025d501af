"""Decides where to resume, what to keep and what to evict; knows neither vLLM, torch nor a clock.

Imports nothing of ours. The plugin, the simulator and the host tier drive these same classes.
"""
