#!/usr/bin/env bash
# Builds versitygw, an S3 server over a folder that some tests keep tables in, or says in one line why it cannot.
#
# Always succeeds: without it those tests are skipped. Building takes some minutes, once.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly VERSION=v1.8.0
home=${HEADGATE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/headgate}/versitygw-$VERSION

if [ ! -x "$home/versitygw" ]; then
    if ! command -v go >/dev/null; then
        echo "setup: warning: without Go the tests with an object store are skipped" >&2
    elif ! GOBIN=$home go install "github.com/versity/versitygw/cmd/versitygw@$VERSION" >&2; then
        echo "setup: warning: versitygw could not be built, so the tests with an object store are skipped" >&2
    fi
fi
