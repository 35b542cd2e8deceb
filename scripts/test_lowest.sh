#!/usr/bin/env bash
# test_lowest.sh PYTHON FOLDER [ARGUMENTS OF PYTEST]: the fast tests, with the lowest versions that pyproject.toml allows.
#
# They are installed into a virtual environment of their own in FOLDER. Warnings are not errors here: old packages use
# what newer ones of others advise against.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python=$1
venv=$2
shift 2

constraints=$(mktemp)
trap 'rm -f "$constraints"' EXIT
"$python" scripts/lowest_versions.py > "$constraints"
scripts/make_venv.sh "$python" "$venv" "$constraints"
"$venv/bin/python" -m pytest --numprocesses auto --maxprocesses 4 --dist worksteal -W default -m 'not long' "$@"
