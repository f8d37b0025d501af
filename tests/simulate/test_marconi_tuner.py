"""The tuner follows the candidate that does best."""

from __future__ import annotations

import pytest

from flashstate.simulate import marconi_tuner
from flashstate.simulate.conversation import conversations
from flashstate.simulate.marconi_tuner import ALPHAS, TunedEngineCache
from flashstate.simulate.presets import preset
from flashstate.simulate.rules import Rules
from flashstate.simulate.schedule import events, schedule
from flashstate.simulate.systems import systems
from tests.simulate.sessions import make_sessions


def test_alpha_is_that_of_the_candidate_with_most_hits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marconi_tuner, "WINDOW", 20)
    monkeypatch.setattr(marconi_tuner, "EVERY", 5)
    geometry = preset("glm-5.3-flash").with_blocks(60)
    trajectories = [conversations(session)[:1] for session in make_sessions(12)]
    requests = schedule(trajectories, Rules(6, duration_s=1200.0, warmup_s=0.0), geometry.block_tokens)
    engine = systems()["marconi-tuned"].build(geometry, requests)
    assert isinstance(engine, TunedEngineCache)
    history: list[dict[float, int]] = []
    chosen = set()
    for now, is_end, request in events(requests):
        if is_end:
            engine.end(request, now)
            continue
        engine.start(request, now)
        history.append(engine._resumed[-1])
        served = len(history)
        if served < 20:
            assert engine.alpha == 0.0
        elif served % 5 == 0:
            window = list(engine._resumed)
            totals = {alpha: sum(one[alpha] for one in window) for alpha in ALPHAS}
            assert totals[engine.alpha] == max(totals.values())
        chosen.add(engine.alpha)
    assert len(history) > 60
    assert any(len(set(one.values())) > 1 for one in history), (
        "the candidates never differed: nothing was tuned"
    )
