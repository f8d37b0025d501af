"""What a client may say of its request, in `vllm_xargs` (SamplingParams.extra_args): where to checkpoint, and the end.

- `flashstate_checkpoints`: positions in tokens of the prompt to keep a state at, as other APIs' cache breakpoints.
- `flashstate_session_ends`: true when the session will send nothing more: what only it used is given up at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from vllm.logger import init_logger

if TYPE_CHECKING:
    from vllm.v1.request import Request

logger = init_logger("vllm.flashstate")

CHECKPOINTS: Final = "flashstate_checkpoints"
SESSION_ENDS: Final = "flashstate_session_ends"
MOST_CHECKPOINTS: Final = 16
_SWITCH: Final[Mapping[object, bool]] = {True: True, False: False, "true": True, "false": False}


def named_positions(request: Request) -> tuple[int, ...]:
    """Positions the client names, those inside the prompt. What cannot be read is said in the log, and left out."""
    given = _extra(request).get(CHECKPOINTS, ())
    values = given if isinstance(given, (list, tuple)) else [given]
    positions = [value for value in values if isinstance(value, int) and not isinstance(value, bool)]
    if len(positions) != len(values):
        _refuse(request, CHECKPOINTS, given, "a list of whole numbers of tokens")
    if len(positions) > MOST_CHECKPOINTS:
        _refuse(request, CHECKPOINTS, f"{len(positions)} positions", f"at most {MOST_CHECKPOINTS}")
    return tuple(p for p in positions[:MOST_CHECKPOINTS] if 0 < p < request.num_prompt_tokens)


def ends_session(request: Request) -> bool:
    """Whether the client says that this is its last request."""
    given = _extra(request).get(SESSION_ENDS, False)
    try:
        return _SWITCH[given]
    except (KeyError, TypeError):
        _refuse(request, SESSION_ENDS, given, "true or false")
        return False


def _extra(request: Request) -> Mapping[str, Any]:
    params = request.sampling_params
    return (params.extra_args if params is not None else None) or {}


def _refuse(request: Request, name: str, given: object, wanted: str) -> None:
    logger.warning("request %s: %s is %.80r: must be %s; ignored", request.request_id, name, given, wanted)
