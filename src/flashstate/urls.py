"""Addresses of servers: what is one, and how it may be shown to anybody."""

from __future__ import annotations

import re

from yarl import URL

_USER = re.compile(r"(://)[^/@\s,]*@")


def without_passwords(text: str) -> str:
    """`text` (an address, several, a command line) with the user and password of each address in it taken out."""
    return _USER.sub(r"\1", text)


def is_server(url: str) -> bool:
    """Whether `url` is a whole http or https address with a host."""
    try:
        parsed = URL(url)
    except ValueError:
        return False
    return parsed.scheme in ("http", "https") and bool(parsed.host)
