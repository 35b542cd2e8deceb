#!/usr/bin/env bash
# Makes an archive of the classes that Spark loads when it starts (Java's class data sharing), beside the packages that
# it is of: tests start Spark about a hundred times, and it takes half as long from an archive.
#
# Always succeeds: without it Spark only starts slower. Java ignores an archive of another version or of other packages.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly python=$1 archive=$2
made=$archive.$$

if [ ! -e "$archive" ] && command -v java >/dev/null; then
    echo "setup: making an archive of Spark's classes"
    trap 'rm -rf "$made" "$made.files"' EXIT
    options="$("$python" -m tests.services.java) -XX:ArchiveClassesAtExit=$made"
    if SPARK_SUBMIT_OPTS=$options "$python" -m tests.services.start_spark "$made.files" >/dev/null 2>&1 &&
        [ -e "$made" ]; then
        mv "$made" "$archive"
    else
        echo "setup: warning: Spark's classes could not be archived; it starts slower in tests" >&2
    fi
fi
