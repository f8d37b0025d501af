"""`flashstate demo`: stock vLLM and FlashState in turn, before the same work, side by side.

Starts servers as processes of their own, so it imports neither vLLM nor torch. May import all but `cli`.
"""
