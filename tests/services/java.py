"""Options of Java for processes that live for seconds or minutes."""

from __future__ import annotations

#: no time for the better compiler, nor threads of the collector that take the processors from others
QUICK_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
