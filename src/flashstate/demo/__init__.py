"""`flashstate demo`: a preset of `flashstate bench` (one load, once, all the work of a few agents), shown side by side.

Starts servers as processes of their own, so it imports neither vLLM nor torch. May import all but `cli`.
"""
