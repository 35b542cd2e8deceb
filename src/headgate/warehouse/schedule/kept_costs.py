"""Learned costs in a small file beside the tables, so that a restarted warehouse knows what its updates cost.

The file is replaced as a whole, now and then and at the end of a run. It is a help only: one that is missing, old or
damaged is ignored, and costs are learned again. Nothing else depends on it.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from headgate.core import CostModel
from headgate.places.object_path import ObjectPath
from headgate.places.place import AnyPath

#: (what the cost is a function of: see ``Update.unit``, the model)
KnownCost = tuple[str, CostModel]

_VERSION = 1


@dataclass(frozen=True, slots=True)
class KnownPace:
    """How fast data came to a node: so much of the unit of its cost in a second of data, and seconds between arrivals.

    None if that is not known.
    """

    per_second: float | None = None
    period: float | None = None


def costs_file(warehouse: AnyPath) -> AnyPath:
    """Where the costs of the warehouse in a directory are kept."""
    return warehouse / "costs.json"


def read_costs(warehouse: AnyPath) -> dict[str, KnownCost]:
    """{node: its cost} as the last run knew it; nothing if that cannot be found out."""
    try:
        content = _read(warehouse)
        return {
            str(name): (str(unit), CostModel.from_numbers([float(number) for number in numbers]))
            for name, (unit, numbers) in content["nodes"].items()
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def read_paces(warehouse: AnyPath) -> dict[str, KnownPace]:
    """{node: how fast data came to it} as the last run knew it; nothing if that cannot be found out."""
    try:
        content = _read(warehouse)
        return {
            str(name): KnownPace(*(None if number is None else float(number) for number in numbers))
            for name, numbers in content.get("paces", {}).items()
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def _read(warehouse: AnyPath) -> Any:
    content = json.loads(costs_file(warehouse).read_text("utf-8"))
    if content["version"] != _VERSION:
        raise ValueError("the file of another version")
    return content


def write_costs(
    warehouse: AnyPath, costs: Mapping[str, KnownCost], paces: Mapping[str, KnownPace] = MappingProxyType({})
) -> None:
    """Replace the file. It never raises: a run does not fail because costs cannot be kept."""
    learned = {name: [unit, numbers] for name, (unit, model) in costs.items() if (numbers := model.numbers())}
    if not learned:
        return
    file = costs_file(warehouse)
    known = {name: [pace.per_second, pace.period] for name, pace in paces.items() if name in learned}
    content = json.dumps({"version": _VERSION, "nodes": learned, "paces": known})
    with contextlib.suppress(OSError):
        if isinstance(file, ObjectPath):
            file.write_text(content)
            return
        part = file.with_suffix(".tmp")
        part.write_text(content, "utf-8")
        os.replace(part, file)
