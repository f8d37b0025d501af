"""What a client may say of its request, in `vllm_xargs` (SamplingParams.extra_args): where to checkpoint, and the end.

- `flashstate_checkpoints`: positions in tokens of the prompt to keep a state at, as other APIs' cache breakpoints.
- `flashstate_session_ends`: true when the session will send nothing more: what only it used is given up at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from vllm.logger import init_logger

if TYPE_CHECKING:
    from vllm.v1.request import Request

logger = init_logger("vllm.flashstate")

CHECKPOINTS: Final = "flashstate_checkpoints"
SESSION_ENDS: Final = "flashstate_session_ends"
MOST_CHECKPOINTS: Final = 16
_SWITCH: Final[Mapping[object, bool]] = {True: True, False: False, "true": True, "false": False}


def warn_of_nonsense(request: Request) -> None:
    """Say in one line of the log what of the client's words is ignored. To be asked once a request."""
    complaints = "; ".join(_complaints(request))
    if complaints:
        logger.warning("request %s: %s; ignored", request.request_id, complaints)


def named_positions(request: Request) -> tuple[int, ...]:
    """Positions the client names, those inside the prompt. What cannot be read is left out."""
    values = _listed(request)[:MOST_CHECKPOINTS]
    return tuple(value for value in values if _is_whole(value) and 0 < value < request.num_prompt_tokens)


def ends_session(request: Request) -> bool:
    """Whether the client says that this is its last request. No, where it cannot be read."""
    return _switch(_extra(request).get(SESSION_ENDS)) or False


def _complaints(request: Request) -> Iterator[str]:
    values, ends = _listed(request), _extra(request).get(SESSION_ENDS, False)
    if not all(map(_is_whole, values[:MOST_CHECKPOINTS])):
        given = _extra(request)[CHECKPOINTS]
        yield f"{CHECKPOINTS} is {given!r:.80}: must be a list of whole numbers of tokens"
    if len(values) > MOST_CHECKPOINTS:
        yield f"{CHECKPOINTS} has {len(values)} positions: must be at most {MOST_CHECKPOINTS}"
    if _switch(ends) is None:
        yield f"{SESSION_ENDS} is {ends!r:.80}: must be true or false"


def _listed(request: Request) -> Sequence[Any]:
    given = _extra(request).get(CHECKPOINTS, ())
    return given if isinstance(given, (list, tuple)) else (given,)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _switch(given: object) -> bool | None:
    try:
        return _SWITCH.get(given)
    except TypeError:  # not hashable
        return None


def _extra(request: Request) -> Mapping[str, Any]:
    params = request.sampling_params
    return (params.extra_args if params is not None else None) or {}
