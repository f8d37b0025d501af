"""What it costs to compute a stretch of a prompt."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite


@dataclass(frozen=True, slots=True)
class PrefillCostModel:
    """Prefill seconds T(a, b) = D (b - a) + E (b^2 - a^2), positions in tokens (FlashState, section 4).

    D is in seconds a token, E in seconds per (1,000 tokens)^2: our reading of the published coefficients, which
    carry no units. Only the ratio D : E changes what is evicted. The defaults are those published for
    GLM-5.3-Flash on two B200s; fit your own for times in real seconds.
    """

    d: float = 1.862e-5
    e: float = 3.33e-6

    def __post_init__(self) -> None:
        if not (isfinite(self.d) and isfinite(self.e)) or self.d < 0 or self.e < 0 or self.d + self.e == 0:
            raise ValueError(
                f"prefill cost coefficients D={self.d} E={self.e}: both must be finite and >= 0, and one > 0; "
                "pass e.g. --prefill-cost-coefficients 1.862e-5 3.33e-6"
            )

    def seconds(self, start: int, stop: int) -> float:
        """Seconds to compute tokens [start, stop) given everything before."""
        assert 0 <= start <= stop, (start, stop)
        # (b^2 - a^2) = (b - a)(b + a): no difference of large squares.
        return (stop - start) * (self.d + self.e * 1e-6 * (stop + start))
