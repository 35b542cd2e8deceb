"""``python -m headgate`` is the ``headgate`` command."""

from headgate.cli import main

main()
