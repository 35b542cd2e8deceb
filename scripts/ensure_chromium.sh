#!/usr/bin/env bash
# Finds Chromium, in which some tests open the page of the monitor, or installs it, or says in one line how.
#
# Always succeeds: without a browser those tests are skipped, except in CI, where they fail.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/system_packages.sh
. scripts/system_packages.sh

found() {
    command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null
}

if ! found; then
    echo "setup: no Chromium found; trying to install it"
    # Ubuntu's package of this name needs snap, which a container does not have; then it is not found, below.
    install_first_available apt-get chromium ||
        install_first_available dnf chromium || true
fi
if ! found; then
    echo "setup: warning: without Chromium the tests of the page in a browser are skipped: apt-get install chromium" >&2
fi
