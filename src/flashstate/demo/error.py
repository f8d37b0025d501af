"""What stops a demo."""

from __future__ import annotations


class DemoError(Exception):
    """Something that a user can understand and act on. One line, at times followed by lines of a log."""
