#!/usr/bin/env bash
# Finds Java 17 or newer, or installs it, or says in one line how.
#
# Always succeeds: only tables on Spark need Java. The scheduling core and the simulator run without.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/system_packages.sh
. scripts/system_packages.sh

oldest=17

# The major version of a java program; nothing when it does not run (macOS has a java that only prints advice).
java_major() {
    { "$1" -version 2>&1 || true; } | sed -n -E '/ version "/{s/.* version "(1\.)?([0-9]+).*/\2/p;q;}'
}

is_new_enough() {
    local major
    command -v "$1" >/dev/null || return 1
    major=$(java_major "$1")
    [ -n "$major" ] && [ "$major" -ge "$oldest" ]
}

# JAVA_HOME before PATH, as Spark itself looks.
find_java() {
    if [ -n "${JAVA_HOME:-}" ] && is_new_enough "$JAVA_HOME/bin/java"; then
        echo "$JAVA_HOME/bin/java"
    elif is_new_enough java; then
        command -v java
    else
        return 1
    fi
}

install_java() {
    # Each release of a distribution has only some versions.
    install_first_available apt-get openjdk-17-jre-headless openjdk-21-jre-headless ||
        install_first_available dnf java-17-openjdk-headless java-21-openjdk-headless ||
        install_first_available brew openjdk@17
}

how_to_install() {
    if command -v apt-get >/dev/null; then
        echo "sudo apt-get install openjdk-17-jre-headless"
    elif command -v dnf >/dev/null; then
        echo "sudo dnf install java-17-openjdk-headless"
    elif command -v brew >/dev/null; then
        echo "brew install openjdk@17 && export JAVA_HOME=\"\$(brew --prefix openjdk@17)\""
    else
        echo "install a JDK from https://adoptium.net and set JAVA_HOME to its folder"
    fi
}

if ! java=$(find_java); then
    echo "setup: no Java $oldest or newer found; trying to install it"
    install_java || true
    if ! java=$(find_java); then
        echo "setup: warning: without Java $oldest or newer, tables on Spark cannot run: $(how_to_install)" >&2
        exit 0
    fi
fi
echo "setup: Java $(java_major "$java") at $java"
if [ -n "${JAVA_HOME:-}" ] && [ "$java" != "$JAVA_HOME/bin/java" ]; then
    echo "setup: warning: Spark will use JAVA_HOME=$JAVA_HOME, which has no Java $oldest or newer: unset JAVA_HOME" >&2
fi
