#!/usr/bin/env bash
# Makes a virtual environment and installs flashstate into it, editable, with vLLM for CPU and the developer tools.
#   scripts/setup.sh [FOLDER]      FOLDER: .venv by default
#   FLASHSTATE_PYTHON (or PYTHON)  base interpreter; else the first of python3.11 .. python3.13, python3
#   FLASHSTATE_EXTRAS              cpu,dev by default; cuda,dev on a machine with a GPU
set -euo pipefail
cd "$(dirname "$0")/.."

venv=${1:-.venv}
extras=${FLASHSTATE_EXTRAS:-cpu,dev}
torch_index=https://download.pytorch.org/whl/cpu
log=$(mktemp "${TMPDIR:-/tmp}/flashstate-setup.XXXXXX.log")

say() { echo "setup: $*"; }
die() {
    echo "setup: $1" >&2
    echo "       $2" >&2
    exit 1
}

base_python() {
    local candidate
    for candidate in "${FLASHSTATE_PYTHON:-${PYTHON:-}}" python3.11 python3.12 python3.13 python3; do
        [ -n "$candidate" ] || continue
        if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
        [ "$candidate" != "${FLASHSTATE_PYTHON:-${PYTHON:-}}" ] || return 1
    done
    return 1
}

# pip's output goes to the log; of its errors only what a person can act on is shown.
install() { "$venv/bin/python" -m pip install --disable-pip-version-check "$@" >>"$log" 2>&1; }
show_errors() { grep -E '^(ERROR|error)' "$log" | grep -v 'Location .* is ignored' | tail -n 5 >&2 || true; }
imports() { "$venv/bin/python" -c "import $1" >/dev/null 2>&1; }

if [ ! -x "$venv/bin/python" ]; then
    python=$(base_python) || die "no usable Python: ${FLASHSTATE_PYTHON:-${PYTHON:-python3}} is not 3.11 or later, or lacks venv and pip." \
        "Install python3.11 (Debian: python3.11-venv too), or name one: FLASHSTATE_PYTHON=/path/to/python make setup"
    say "making $venv with $("$python" -V)"
    "$python" -m venv "$venv" || die "could not make $venv." "See the message above; remove $venv and try again."
fi

say "installing flashstate[$extras] into $venv (some minutes the first time; pip's log: $log)"
if ! install -e ".[$extras]" || ! imports torch; then
    say "the package index has no CPU build of torch: trying $torch_index as well"
    if ! install --extra-index-url "$torch_index" -e ".[$extras]"; then
        show_errors
        die "pip could not install flashstate[$extras]." "Read $log; check the network and the disk, then run: make setup"
    fi
fi
imports torch || die "torch is installed but does not import." "See why: $venv/bin/python -c 'import torch'"

# A torchvision built for another torch breaks every import of transformers; vLLM needs none of the three for text.
if [[ ",$extras," == *,cpu,* ]] && ! imports torchvision; then
    say "removing torchvision, torchaudio and torchcodec: built for another torch, and not needed"
    "$venv/bin/python" -m pip uninstall -y torchvision torchaudio torchcodec >>"$log" 2>&1 || true
fi
say "done: $("$venv/bin/python" -c 'import flashstate; print("flashstate", flashstate.__version__)') in $venv"
rm -f "$log"
