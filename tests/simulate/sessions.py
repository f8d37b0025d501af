"""Small workloads, made up."""

from __future__ import annotations

from array import array
from random import Random

from flashstate.simulate.conversation import conversations
from flashstate.simulate.presets import CacheGeometry
from flashstate.simulate.workload import Workload
from flashstate.traces.session import BLOCK_TOKENS, MAIN_AGENT, Agent, Session, Turn


def make_geometry(blocks: int = 60, block_tokens: int = 256, checkpoint_blocks: int = 2) -> CacheGeometry:
    block_bytes = 10.0 * block_tokens
    return CacheGeometry(
        "tiny",
        block_tokens,
        blocks,
        checkpoint_blocks,
        blocks * block_bytes,
        checkpoint_blocks * block_bytes,
        10.0,
    )


def make_agent(
    random: Random, name: str, turns: int, spawn: int | None = None, start_s: float = 0.0
) -> Agent:
    """Each turn goes on from the last one's output, or now and then from a place before it."""
    made: list[Turn] = []
    blocks: list[int] = []
    prompt, now = random.randrange(200, 1500), start_s
    while len(made) < turns:
        gap = random.uniform(1, 20) if made else 0.0
        api = random.uniform(1, 8)
        shared = 0
        if made:
            last = made[-1]
            grown = last.prompt_tokens + last.output_tokens
            back = random.randrange(1, 400) if random.random() < 0.2 else 0
            shared = max(0, min(len(blocks), grown // BLOCK_TOKENS) - back // BLOCK_TOKENS)
            prompt = max(grown - back, 1) + random.randrange(1, 600)
        now += gap
        new = array("q", (random.getrandbits(40) for _ in range(prompt // BLOCK_TOKENS - shared)))
        output = random.randrange(0, 300)
        made.append(
            Turn(
                now, gap, prompt, output, shared, new, api_s=api, stop=random.choice(["tool_use", "end_turn"])
            )
        )
        blocks = blocks[:shared] + list(new)
        now += api
    return Agent(name, spawn, tuple(made))


def make_session(seed: int, turns: int = 6, sub_agents: int = 0) -> Session:
    random = Random(seed)
    main = make_agent(random, MAIN_AGENT, turns)
    subs = [
        make_agent(random, f"agent_{n}", 3, spawn=0, start_s=main.turns[0].end_s) for n in range(sub_agents)
    ]
    return Session(f"session-{seed}", main, tuple(subs))


def make_sessions(count: int = 5, seed: int = 0, turns: int = 6) -> list[Session]:
    return [make_session(seed * 1000 + number, turns, sub_agents=number % 2) for number in range(count)]


def make_workload(count: int = 5, seed: int = 0, turns: int = 6) -> Workload:
    trajectories = tuple(conversations(session) for session in make_sessions(count, seed, turns))
    return Workload(("made",), "all", trajectories, {})
