"""Checking the parameters of placements."""

from __future__ import annotations

from collections.abc import Iterable

from headgate.core.errors import ParameterError


def check_choice(placement: str, parameter: str, value: str, choices: Iterable[str]) -> None:
    """Refuse a value that is not among the choices."""
    known = tuple(choices)
    if value not in known:
        raise ParameterError(f"placement {placement!r}: {parameter} must be one of {', '.join(known)}; got {value!r}")


def check_positive(placement: str, parameter: str, value: float) -> None:
    """Refuse zero, negative numbers and NaN."""
    if not value > 0:
        raise ParameterError(f"placement {placement!r}: {parameter} must be greater than 0; got {value}")
