"""What every command does alike."""

from __future__ import annotations

import signal

import pytest

from flashstate.console import interrupts


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_is_switched_off_ends_nothing(number: signal.Signals) -> None:
    assert number in set(interrupts())
    before = signal.signal(number, signal.SIG_IGN)
    try:
        assert set(interrupts()) == {signal.SIGINT, signal.SIGTERM, signal.SIGHUP} - {number}
    finally:
        signal.signal(number, before)
