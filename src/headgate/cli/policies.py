"""``headgate policies``: list the policies and placements."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Annotated

import typer
from rich.text import Text

from headgate.cli.output import PlainConsole, say, styled
from headgate.core import PLACEMENTS, POLICIES, Placement, Policy


def policies(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """List the policies and placements.

    Each has its rule, its parameters and the paper that it comes from.
    """
    if as_json:
        say(json.dumps({"policies": _entries(POLICIES), "placements": _entries(PLACEMENTS)}, indent=2))
        return
    console = PlainConsole()
    _print_listing(console, "Policies: which node runs next", POLICIES)
    _print_listing(console, "\nPlacements: on which workers a node may run", PLACEMENTS)
    console.print(
        "\nParameters follow a colon: --policy qst:capacity=500 --placement proportional:k=2,aggressive=false",
        soft_wrap=True,
    )


def _print_listing(
    console: PlainConsole, title: str, known: dict[str, type[Policy]] | dict[str, type[Placement]]
) -> None:
    """One line each, on a narrow terminal too (a table would wrap its cells)."""
    console.print(title, style="bold")
    for name, kind in known.items():
        parameters = _parameters(kind)
        taking = f" ({parameters})" if parameters else ""
        named, paper = styled(f"  {name:<21} ", "bold"), styled(f" | {kind.paper}", "dim")
        console.print(Text.assemble(named, kind.summary, styled(taking, "dim"), paper), soft_wrap=True)


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
