"""Addresses of servers, as they may be shown to anybody."""

from __future__ import annotations

import re

_USER = re.compile(r"(://)[^/@\s,]*@")


def without_passwords(text: str) -> str:
    """`text` (an address, several, a command line) with the user and password of each address in it taken out."""
    return _USER.sub(r"\1", text)
