# Installing packages of the operating system; sourced by the other scripts, not run.
#
# It never asks for a password: without root or passwordless sudo, or with HEADGATE_NO_SYSTEM_PACKAGES set,
# every function here fails and the caller says in one line what the user can do.
# shellcheck shell=bash

# Runs a command as root, or fails without asking.
as_root() {
    if [ -n "${HEADGATE_NO_SYSTEM_PACKAGES:-}" ]; then
        return 1
    elif [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        sudo -n "$@"
    else
        return 1
    fi
}

# install_first_available MANAGER PACKAGE...: installs the first of the packages that the manager has.
install_first_available() {
    local manager=$1 package
    shift
    command -v "$manager" >/dev/null || return 1
    if [ "$manager" = apt-get ]; then
        # Fresh container images carry no package lists. The short time-out is for machines without a network.
        as_root apt-get -qq -o Acquire::http::Timeout=20 -o Acquire::Retries=1 update >&2 || return 1
    fi
    for package in "$@"; do
        case $manager in
            apt-get) as_root env DEBIAN_FRONTEND=noninteractive \
                apt-get -qq install --yes --no-install-recommends "$package" >&2 && return 0 ;;
            dnf) as_root dnf --quiet --assumeyes install "$package" >&2 && return 0 ;;
            # Homebrew refuses to run as root, and needs no root.
            brew) [ -z "${HEADGATE_NO_SYSTEM_PACKAGES:-}" ] && brew install --quiet "$package" >&2 && return 0 ;;
        esac
    done
    return 1
}
