"""What is asked of the server, and what becomes of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np

from flashstate.fit.measure import Prefill, measure, requests
from flashstate.fit.plan import plan
from flashstate.replay.client import CompletionClient
from tests.fit.server import TIME, FakeServer, serving

QUICK = replace(TIME, d=1e-6, e=0.0, request_s=0.001, resume_s=0.0)
CHAINS = plan(1024)
GROWTHS = {chain.then: chain.first for chain in CHAINS if chain.then}
ROUNDS = 2


def measured(fake: FakeServer) -> list[Prefill]:
    steps = 0

    def step() -> None:
        nonlocal steps
        steps += 1

    async def run(url: str) -> list[Prefill]:
        async with CompletionClient(url, "tiny") as client:
            return await measure(client, CHAINS, ROUNDS, np.random.default_rng(), step)

    with serving(fake) as url:
        found = asyncio.run(run(url))
    assert steps == requests(CHAINS, ROUNDS) == len(fake.prompts)
    return found


def test_prompts_are_new_but_for_what_is_meant_to_be_cached() -> None:
    fake = FakeServer(QUICK)
    prefills = measured(fake)
    # Two new prompts may begin with the same token by chance.
    warm = [prefill for prefill in prefills if prefill.start > 3]
    assert len(warm) == ROUNDS * len(GROWTHS)
    assert all(prefill.start == GROWTHS[prefill.stop] for prefill in warm)
    starts = {tuple(prompt[:12]) for prompt in fake.prompts}
    assert len(starts) == ROUNDS * len(CHAINS) + 3  # three warm the server up
    assert len(prefills) == len(fake.prompts) - 3


def test_a_second_run_hits_nothing_of_the_first() -> None:
    first, second = FakeServer(QUICK), FakeServer(QUICK)
    measured(first)
    measured(second)
    begins = [{tuple(prompt[:12]) for prompt in fake.prompts} for fake in (first, second)]
    assert not begins[0] & begins[1]


def test_every_round_has_an_order_of_its_own() -> None:
    fake = FakeServer(QUICK)
    lengths = [prefill.stop for prefill in measured(fake)]
    half = len(lengths) // 2
    assert lengths[:half] != lengths[half:]
    assert sorted(lengths[:half]) == sorted(lengths[half:])


def test_a_server_that_does_not_say_what_it_had_cached_is_measured_cold() -> None:
    prefills = measured(FakeServer(QUICK, says_cached=False))
    assert {prefill.start for prefill in prefills} == {0}
    assert sorted(prefill.stop for prefill in prefills) == sorted([chain.first for chain in CHAINS] * ROUNDS)


def test_a_time_is_that_to_the_first_token() -> None:
    seconds = [prefill.seconds for prefill in measured(FakeServer(replace(QUICK, request_s=0.02)))]
    assert min(seconds) >= 0.02
    assert np.median(seconds) < 0.1
