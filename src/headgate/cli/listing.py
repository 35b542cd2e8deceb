"""``headgate policies``: what there is to choose from."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from headgate.core.placement import Placement
from headgate.core.policy import Policy
from headgate.core.registry import PLACEMENTS, POLICIES


def policies(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object for machines.")] = False,
) -> None:
    """List every policy and placement with one line each and the paper it comes from."""
    if as_json:
        print(json.dumps({"policies": _entries(POLICIES), "placements": _entries(PLACEMENTS)}, indent=2))
        return
    console = Console()
    console.print(_listing("Policies: who runs first", POLICIES, "who runs first"))
    console.print(_listing("Placements: on which workers", PLACEMENTS, "where"))
    console.print(
        "Choose one with its parameters, for example  --policy max-benefit  --placement proportional:k=2,aggressive=false",
        highlight=False,
    )


def _listing(title: str, known: dict[str, type[Policy]] | dict[str, type[Placement]], what: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, header_style="bold", pad_edge=False)
    for heading in ("name", what, "parameters", "from"):
        table.add_column(heading, overflow="fold")
    for name, kind in known.items():
        table.add_row(name, kind.summary, _parameters(kind), kind.paper)
    return table


def _parameters(kind: type[Policy] | type[Placement]) -> str:
    return ", ".join(f"{field.name}={field.default}" for field in fields(kind) if _simple(field.default))  # type: ignore[arg-type]


def _simple(value: object) -> bool:
    return isinstance(value, int | float | str)


def _entries(known: dict[str, type[Policy]] | dict[str, type[Placement]]) -> list[dict[str, object]]:
    return [
        {
            "name": name,
            "summary": kind.summary,
            "paper": kind.paper,
            "features": list(kind.needs),
            "parameters": {
                field.name: field.default
                for field in fields(kind)  # type: ignore[arg-type]
                if _simple(field.default)
            },
        }
        for name, kind in known.items()
    ]
