#!/usr/bin/env bash
# Installs Chromium for the tests that look at the report in a browser, where that is possible without asking: as root,
# on Debian or Ubuntu. Elsewhere says so and is content: those tests are then left out.
set -euo pipefail

say() { echo "browser: $*"; }

if command -v chromium chromium-browser google-chrome >/dev/null; then
    exit 0
fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    say "no Chromium, and not root on Debian: the report's browser tests will be skipped"
    exit 0
fi
say "installing chromium"
if ! (apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends chromium) >/dev/null 2>&1; then
    say "apt-get could not install chromium: the report's browser tests will be skipped"
fi
