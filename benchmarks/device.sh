#!/usr/bin/env bash
# The Triton kernels on a CUDA machine, without internet, in under six minutes: exactness first, then times.
# Needs Python 3.11 or later with torch and triton (PYTHON names it); uses Flash Linear Attention or vLLM's copy of it
# as a baseline where one is installed. Prints a table and one JSON object. Arguments: benchmarks/kernels_device.py.
set -euo pipefail
cd "$(dirname "$0")/.."
python="${PYTHON:-}"
if [ -z "$python" ]; then
    python=python3
    [ -x .venv/bin/python ] && python=.venv/bin/python
fi
export PYTHONPATH="$PWD/src:$PWD${PYTHONPATH:+:$PYTHONPATH}"
# Kernels of a tree in work stay out of the user's cache, and a stale one out of the check.
TRITON_CACHE_DIR="$(mktemp -d)"
export TRITON_CACHE_DIR
trap 'rm -rf "$TRITON_CACHE_DIR"' EXIT
"$python" -m benchmarks.kernels_device "$@"
