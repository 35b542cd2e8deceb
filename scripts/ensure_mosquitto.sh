#!/usr/bin/env bash
# Finds mosquitto, the MQTT broker that some tests talk to, or installs it, or says in one line how.
#
# Always succeeds: without a broker those tests are skipped, except in CI, where they fail.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/system_packages.sh
. scripts/system_packages.sh

# Debian puts it where only root looks.
PATH=$PATH:/usr/sbin:/usr/local/sbin

if ! command -v mosquitto >/dev/null; then
    echo "setup: no mosquitto found; trying to install it"
    install_first_available apt-get mosquitto ||
        install_first_available dnf mosquitto ||
        install_first_available brew mosquitto || true
fi
if ! command -v mosquitto >/dev/null; then
    echo "setup: warning: without mosquitto the tests with an MQTT broker are skipped: apt-get install mosquitto" >&2
fi
