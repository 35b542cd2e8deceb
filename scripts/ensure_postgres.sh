#!/usr/bin/env bash
# Finds a PostgreSQL server, which some tests start for themselves, or installs it, or says in one line how.
#
# Always succeeds: without it those tests are skipped, except in CI, where they fail.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/system_packages.sh
. scripts/system_packages.sh

# Debian keeps the server's programs out of the path, one folder for each version.
has_postgres() {
    command -v initdb >/dev/null || compgen -G "/usr/lib/postgresql/*/bin/initdb" >/dev/null ||
        compgen -G "/opt/homebrew/opt/postgresql*/bin/initdb" >/dev/null
}

if ! has_postgres; then
    echo "setup: no PostgreSQL server found; trying to install it"
    install_first_available apt-get postgresql ||
        install_first_available dnf postgresql-server ||
        install_first_available brew postgresql@16 || true
fi
if ! has_postgres; then
    echo "setup: warning: without PostgreSQL its tests are skipped: apt-get install postgresql" >&2
fi
