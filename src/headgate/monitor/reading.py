"""The process that reads a recorded run: the name of its trace on standard input, its record on standard output.

The record is much smaller than the trace, and ready to be shown. It is pickled, which is safe only because nobody but
this process writes it, from a trace of which nothing is taken on trust.
"""

from __future__ import annotations

import pickle
import sys

from headgate.apart import ApartError, asked_apart, request_apart, trace_from_request, trace_to_request
from headgate.core import HeadgateError
from headgate.monitor.record import RunRecord
from headgate.places.place import AnyPath


class UnreadableRunError(HeadgateError):
    """A recorded run cannot be read."""


def record_apart(trace: AnyPath) -> RunRecord:
    """The record of a run that is over, read by a process of its own."""
    try:
        found = pickle.loads(asked_apart("headgate.monitor.reading", trace_to_request(trace)))
    except ApartError as error:
        raise UnreadableRunError(f"the run {trace.name} could not be read: {error}") from None
    if not isinstance(found, RunRecord):
        raise UnreadableRunError(str(found))
    return found


def main() -> None:
    from headgate.monitor.recorded import record_of
    from headgate.warehouse.run.trace import read_trace

    request = request_apart()
    found: RunRecord | str
    try:
        found = record_of(read_trace(trace_from_request(request)))
    except HeadgateError as error:
        found = str(error)
    sys.stdout.buffer.write(pickle.dumps(found))


if __name__ == "__main__":
    main()
