#!/usr/bin/env bash
# Gets emulators of Google's and Azure's object stores, which some tests keep tables in, or says in one line why it
# cannot: fake-gcs-server is built by Go, Azurite is installed by npm. Does nothing if they are there.
#
# Always succeeds: without them those tests are skipped, with the reason.
set -euo pipefail

readonly GOOGLE=v1.56.1 AZURE=3.35.0
cache=${HEADGATE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/headgate}
google=$cache/fake-gcs-server-$GOOGLE
azure=$cache/azurite-$AZURE

if [ ! -x "$google/fake-gcs-server" ]; then
    if ! command -v go >/dev/null; then
        echo "setup: warning: without Go the tests with Google's object store are skipped" >&2
    elif ! GOBIN=$google go install "github.com/fsouza/fake-gcs-server@$GOOGLE" >&2; then
        echo "setup: warning: fake-gcs-server could not be built, so the tests with Google's object store are skipped" >&2
    fi
fi

if [ ! -d "$azure" ]; then
    unfinished=$azure.$$
    trap 'rm -rf "$unfinished"' EXIT
    if ! command -v npm >/dev/null; then
        echo "setup: warning: without npm the tests with Azure's object store are skipped" >&2
    elif mkdir -p "$unfinished" &&
        npm install --prefix "$unfinished" --no-fund --no-audit --no-save --ignore-scripts --loglevel=error \
            "azurite@$AZURE" >&2; then
        mv -T "$unfinished" "$azure" 2>/dev/null || true # another one may have been faster
    else
        echo "setup: warning: Azurite could not be installed, so the tests with Azure's object store are skipped" >&2
    fi
fi
