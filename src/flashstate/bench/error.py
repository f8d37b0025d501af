"""What stops a comparison of engines."""

from __future__ import annotations


class BenchError(Exception):
    """Something that a user can understand and act on. One line, at times followed by lines of a log."""
