"""What `flashstate cost` prints: tables, and the same as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from flashstate.economics.accounts import Account
from flashstate.economics.prices import Prices
from flashstate.economics.sensitivity import Sensitivity, sensitivity

_HOURLY: Final = ("input", "output", "revenue", "profit")
"""Columns in dollars a GPU-hour."""


def show(
    prices: Prices, accounts: Sequence[Account], notes: Sequence[str], *, vary: bool, console: Console
) -> None:
    """Prints prices and a row a server; with `vary`, a table of profit over prices for each whose rates are known."""
    tokens = " / ".join(f"${_price(price)}" for price in (prices.input, prices.cached_input, prices.output))
    console.print(
        f"[bold]{escape(prices.name)}[/] ({prices.date}): {tokens} per 1M input / cached input / output tokens, "
        f"${_price(prices.gpu_hour)} a GPU-hour",
        highlight=False,
    )
    console.print(f"[dim]{escape(prices.source)}[/]", highlight=False)
    console.print(_summary(accounts), highlight=False)
    for note in notes:
        console.print(escape(note), highlight=False)
    for account in accounts if vary else ():
        if account.serving.rates is not None:
            console.print(f"\n[bold]{escape(account.serving.title)}[/]: profit a GPU-hour", highlight=False)
            console.print(
                _grid(prices, sensitivity(prices, account.serving, account.serving.rates)), highlight=False
            )


def as_json(
    prices: Prices, accounts: Sequence[Account], notes: Sequence[str], *, vary: bool
) -> dict[str, Any]:
    """Plain values, units in the names; dollars."""
    return {
        "prices": asdict(prices)
        | {"date": prices.date.isoformat(), "cached_discount": prices.cached_discount},
        "servers": [_server(prices, account, vary) for account in accounts],
        "notes": list(notes),
    }


def _summary(accounts: Sequence[Account]) -> Table:
    table = Table("", box=None, pad_edge=False, header_style="")
    for title in ("hit rate", "user cost\n1M input", *(f"{name}\nGPU-hour" for name in _HOURLY)):
        table.add_column(title, justify="right", no_wrap=True)
    for account in accounts:
        money = account.earnings
        hourly = ["-"] * len(_HOURLY)
        if money is not None:
            a_gpu = money.input_revenue / money.gpus, money.output_revenue / money.gpus
            hourly = [dollars(value) for value in (*a_gpu, money.revenue_per_gpu_hour)]
            hourly.append(f"[bold]{dollars(money.profit_per_gpu_hour)}[/]")
        serving = account.serving
        table.add_row(
            escape(serving.title),
            f"{serving.hit_rate:.3f}",
            f"${account.user_cost_per_1m_input:.4f}",
            *hourly,
        )
    return table


def _grid(prices: Prices, found: Sensitivity) -> Table:
    """The given prices are marked: without colour, too."""
    table = Table("GPU-hour", box=None, pad_edge=False, header_style="")
    for share in found.discounts:
        given = share == prices.cached_discount
        table.add_column(f"{'*' if given else ''}{share:.0%} off", justify="right", no_wrap=True)
    for rent, row in zip(found.gpu_hours, found.profit_per_gpu_hour, strict=True):
        title = f"{'*' if rent == prices.gpu_hour else ''}{dollars(rent)}"
        table.add_row(title, *map(dollars, row))
    table.add_row("user cost, 1M input", *(f"${cost:.4f}" for cost in found.user_costs))
    table.caption = "off: discount on cached input tokens. * the given prices"
    table.caption_justify = "left"
    return table


def _server(prices: Prices, account: Account, vary: bool) -> dict[str, Any]:
    serving, money = account.serving, account.earnings
    found: dict[str, Any] = {
        "name": serving.name,
        "sessions": serving.sessions,
        "hit_rate": serving.hit_rate,
        "user_cost_per_1m_input": account.user_cost_per_1m_input,
    }
    if money is None or serving.rates is None:
        return found
    found |= asdict(serving.rates) | {
        "engine_hour": {
            "input_revenue": money.input_revenue,
            "output_revenue": money.output_revenue,
            "revenue": money.revenue,
            "gpu_cost": money.gpu_cost,
            "profit": money.profit,
        },
        "revenue_per_gpu_hour": money.revenue_per_gpu_hour,
        "profit_per_gpu_hour": money.profit_per_gpu_hour,
    }
    return found | ({"sensitivity": asdict(sensitivity(prices, serving, serving.rates))} if vary else {})


def _price(amount: float) -> str:
    """Two decimals, more where there are any."""
    short = f"{amount:,.2f}"
    return short if float(short.replace(",", "")) == amount else f"{amount:g}"


def dollars(amount: float) -> str:
    """$5.30, or -$5.30 for a loss."""
    return f"{'-' if round(amount, 2) < 0 else ''}${abs(amount):,.2f}"
