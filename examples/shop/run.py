"""The whole shop for a minute, with one command: files arrive, the tables are kept fresh, and the answers are checked.

    python examples/shop/run.py

The same in pieces, in two terminals: ``python examples/shop/feed.py`` and ``headgate run examples/shop/shop.py``, and
when both are stopped ``python examples/shop/check.py``.
"""

import argparse
import sys
import threading
from pathlib import Path

from headgate.cli.run import run_file
from headgate.warehouse import RunOptions, SparkOptions, open_session, seconds

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER))

import check  # noqa: E402 - beside this file
from feed import feed  # noqa: E402


def main() -> bool:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--for", dest="duration", default="1 min", help="how long the shop is open (default: 1 min)")
    duration = seconds(parser.parse_args().duration, "--for")
    session = open_session("shop")
    closing = threading.Event()
    feeder = threading.Thread(target=feed, args=(FOLDER, closing))
    feeder.start()
    try:
        run_file(FOLDER / "shop.py", RunOptions(), SparkOptions(session=session), duration, None)
        closing.set()
        feeder.join()
        return check.all_as_they_should_be(FOLDER, session)
    finally:
        closing.set()
        session.stop()


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
