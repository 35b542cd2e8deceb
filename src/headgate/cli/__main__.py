"""``python -m headgate.cli`` is the ``headgate`` command."""

from headgate.cli import main

main()
