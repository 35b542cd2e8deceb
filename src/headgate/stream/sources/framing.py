"""Bytes as they come, cut into lines. Knows nothing of what a line says."""

from __future__ import annotations

from headgate.stream.sources.fit import Misfit, as_text

#: bytes of the longest line that is kept: without a limit, input without newlines would fill the memory
LONGEST_LINE = 1 << 20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
#: how much of a line that is too long is shown
_SHOWN = 200


class Framer:
    """Takes bytes and gives lines without their ends, each with its number from 1.

    Empty lines are counted but left out. A line that is too long becomes a misfit; never more than
    ``longest`` bytes of a line are held, however long it is.
    """

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._longest = longest
        self._begun = b""
        #: of a line that has become too long: how many bytes of it have been dropped
        self._dropped = 0
        self._number = 0

    def feed(self, data: bytes) -> tuple[list[int], list[bytes | Misfit]]:
        """The numbers and the texts of the lines that these bytes complete."""
        numbers: list[int] = []
        lines: list[bytes | Misfit] = []
        first, *others = data.split(b"\n")
        self._hold(first)
        if others:
            self._finish(numbers, lines)
            *complete, rest = others
            if self._are_plain(complete, data):
                numbers.extend(range(self._number + 1, self._number + 1 + len(complete)))
                lines.extend(complete)
                self._number += len(complete)
            else:
                for text in complete:
                    self._hold(text)
                    self._finish(numbers, lines)
            self._hold(rest)
        return numbers, lines

    def end(self) -> tuple[list[int], list[bytes | Misfit]]:
        """The last line, if it was not ended by a newline."""
        numbers: list[int] = []
        lines: list[bytes | Misfit] = []
        self._finish(numbers, lines)
        return numbers, lines

    def _are_plain(self, complete: list[bytes], data: bytes) -> bool:
        """Whether lines can be taken as they are, without looking at them one by one: nearly always."""
        longest = max(map(len, complete), default=0)
        blank = b"" in complete or any(map(bytes.isspace, complete))
        return longest <= self._longest and not blank and b"\r" not in data

    def _hold(self, text: bytes) -> None:
        begun = self._begun + text if self._begun else text
        if len(begun) > self._longest:
            self._dropped += len(begun) - self._longest
            begun = begun[: self._longest]
        self._begun = begun

    def _finish(self, numbers: list[int], lines: list[bytes | Misfit]) -> None:
        text = self._begun
        self._number += 1
        if self._number == 1:
            text = text.removeprefix(_BYTE_ORDER_MARK)
        if text.endswith(b"\r"):
            text = text[:-1]
        if self._dropped:
            numbers.append(self._number)
            lines.append(self._too_long(text))
        elif text and not text.isspace():
            numbers.append(self._number)
            lines.append(text)
        self._begun, self._dropped = b"", 0

    def _too_long(self, text: bytes) -> Misfit:
        reason = f"the line has {self._longest + self._dropped} bytes; the longest that is taken has {self._longest}"
        return Misfit(reason, raw=as_text(text[:_SHOWN]))
