"""What forecast keeps, by figures one can follow."""

from __future__ import annotations

from flashstate.core.policies.forecast import Forecast
from flashstate.core.state import PROMPT_END
from tests.core.host import Host, conversation


def policy_of(host: Host) -> Forecast:
    policy = host.cache.policy
    assert isinstance(policy, Forecast)
    return policy


def turn(host: Host, tokens: list[int], prompt: int, now: float, hint: str = "tool_use") -> None:
    """A request over the first `prompt` of `tokens` that ends with all of them, at once."""
    request = f"{tokens[0]}/{len(tokens)}"
    host.cache.learn(request, host.path(tokens[:prompt]), now)
    host.cache.computed(request, host.path(tokens), len(tokens), now, hint)
    host.capture(tokens, now, request=request)
    host.cache.release(request, now)


def taught(host: Host) -> float:
    """Tool calls come back in 5 s, answers never do: 400 of each. Returns the time."""
    policy, now = policy_of(host), 0.0
    for number in range(400):
        call, answer = conversation(2 * number + 10_000, 20), conversation(2 * number + 10_001, 20)
        turn(host, call, 10, now)
        turn(host, answer, 10, now, "end_turn")
        turn(host, [*call, *range(8)], 25, now + 5.0)
        now += 10.0
        while len(host.cache) > 30:
            host.evict(now)
    policy.returns.publish(now)
    host.cache.queue.rebuild(host.cache.units(), now)
    while host.evict(now):
        pass
    return now


def test_who_will_be_back_stays() -> None:
    host = Host("forecast")
    now = taught(host)
    call, answer = conversation(1, 40), conversation(2, 40)
    turn(host, answer, 30, now, "end_turn")
    turn(host, call, 30, now)
    assert host.cache.queue.peek(now + 1)[0] is host.unit(answer)  # type: ignore[index]
    # A call that is overdue is given up like an answer, and only by the clock.
    ranks = [policy_of(host).rank(host.unit(call), now + age)[0] for age in (0.0, 4.0, 60.0)]
    assert ranks[1] > 3 * ranks[2]


def test_a_superseded_state_is_worth_its_share_of_turns_back() -> None:
    host = Host("forecast")
    now = taught(host)
    first = conversation(1, 40)
    second = [*first, *range(5000, 5040)]
    turn(host, first, 30, now)
    turn(host, second, 60, now)
    policy = policy_of(host)
    assert policy.chance(host.unit(second)) > 0.9
    assert policy.chance(host.unit(first)) < 0.05


def test_a_prompt_end_is_priced_as_superseded_while_its_request_runs() -> None:
    host = Host("forecast")
    tokens = conversation(1, 60)
    host.cache.learn("r", host.path(tokens), 0.0)
    host.capture(tokens[:59], 0.0, kind=PROMPT_END, request="r")
    policy, unit = policy_of(host), host.unit(tokens[:59])
    running = policy.chance(unit)
    assert running == policy.turn_backs.served(1)
    host.cache.computed("r", host.path([*tokens, 7, 8]), 62, 1.0)
    host.capture([*tokens, 7, 8], 1.0, request="r")
    assert policy.chance(unit) == running - policy.turn_backs.goes_on
