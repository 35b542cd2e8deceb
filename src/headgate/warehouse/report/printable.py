"""Text for people to read, without what a terminal would take as an order.

Data, file names and error messages may hold anything: an escape sequence that clears the screen, changes the title or
hides what follows, a carriage return that writes over the line, a mark that turns the direction of writing. All output
for people goes through ``printable``.
"""

from __future__ import annotations

import re

#: control characters except tab and line feed, separators of lines, marks that override the direction of writing, and
#: halves of characters, which cannot be written at all
_ORDERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""``text`` with control characters written out, as in JSON; all other Unicode stays as it is.

    In a line of JSON this changes nothing of what the line means.

    >>> print(printable("Größe \x1b[31m 12 °C"))
    Größe \u001b[31m 12 °C
    """
    return _ORDERS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
