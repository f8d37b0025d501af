"""Where `flashstate` and `python -m flashstate` begin."""

from __future__ import annotations

from typing import Final

INTERRUPTED: Final = 130
"""What a shell says of a command that Ctrl-C ended: 128 + SIGINT."""


def main() -> None:
    """Runs the command. The imports take a second, in which Ctrl-C deserves no traceback either."""
    try:
        from flashstate.cli import main as run
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    run()


if __name__ == "__main__":
    main()
