from __future__ import annotations

import subprocess
import sys
import time

from flashstate.bench.busy import Busy

_SPIN = "import time\nwhile True: pass"
_SLEEP = "import time; time.sleep(60)"


def measure(program: str, seconds: float = 1.0) -> float | None:
    process = subprocess.Popen([sys.executable, "-c", program], start_new_session=True)
    try:
        time.sleep(0.3)  # its start
        busy = Busy(process.pid)
        begun_s = time.monotonic()
        while (now_s := time.monotonic()) < begun_s + seconds:
            busy.read(now_s)
            time.sleep(0.1)
        return busy.share(begun_s + 0.2, now_s - 0.2)
    finally:
        process.kill()
        process.wait()


def test_one_that_computes_and_one_that_waits() -> None:
    spins, sleeps = measure(_SPIN), measure(_SLEEP)
    assert spins is not None and sleeps is not None
    # The machine may have other things to do.
    assert 0.2 < spins <= 1.1 and sleeps < 0.1, (spins, sleeps)


def test_nobody_looked() -> None:
    busy = Busy(1)
    assert busy.share(0.0, 1.0) is None
