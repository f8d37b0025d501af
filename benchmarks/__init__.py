"""What measures. Run one as `python -m benchmarks.NAME` from the repository's root."""
