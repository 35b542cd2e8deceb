"""``python -m benchmarks``: see ``benchmarks.harness.command``."""

import sys

from benchmarks.harness.command import main

# Worker processes import this module again under another name; only the first may run the command.
if __name__ == "__main__":
    sys.exit(main())
