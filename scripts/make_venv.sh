#!/usr/bin/env bash
# make_venv.sh PYTHON FOLDER [CONSTRAINTS]: a virtual environment in FOLDER with this package, editable, and its dev
# tools, in the versions that the file CONSTRAINTS states.
#
# An environment that is there and works is kept and brought up to date.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/system_packages.sh
. scripts/system_packages.sh

python=$1
venv=$2
constraints=${3:-/dev/null}

fail() {
    echo "setup: $*" >&2
    exit 1
}

check_version() {
    command -v "$python" >/dev/null ||
        fail "no '$python' on the PATH; install Python 3.11 or newer, or name yours: make setup PYTHON=/path/to/python3"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        fail "Python 3.11 or newer is needed, but '$python' is $("$python" --version 2>&1);" \
            "name a newer one: make setup PYTHON=python3.12"
}

can_make_venv() {
    "$python" -c 'import ensurepip, venv' 2>/dev/null
}

# Debian and Ubuntu ship Python without ensurepip; it is in a package per minor version.
ensure_venv_module() {
    can_make_venv && return
    local minor
    minor=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    echo "setup: installing the venv module of Python $minor"
    install_first_available apt-get "python$minor-venv" python3-venv || true
    can_make_venv ||
        fail "'$python' has no venv module; on Debian or Ubuntu run: sudo apt-get install python$minor-venv"
}

# The scripts of an environment hold absolute paths, so a copied or moved one does not count.
venv_is_usable() {
    "$venv/bin/python" -m pip --version >/dev/null 2>&1 && grep -qF "$(pwd -P)/$venv/bin/python" "$venv/bin/pip"
}

if ! venv_is_usable; then
    check_version
    ensure_venv_module
    "$python" -m venv --clear "$venv"
fi
echo "setup: installing headgate and its tools into $venv (about a minute the first time)"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --constraint "$constraints" \
    --editable '.[dev]' ||
    fail "pip could not install headgate and its tools; its message is above, 'make setup' tries again"
