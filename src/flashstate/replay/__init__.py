"""Replays agent sessions against any OpenAI-compatible server and records what each request got.

A workload says, ahead of any run, who asks what when (`plan`); the driver plays it through the client.
May import `traces` and `core`; knows nothing of engines.
"""
