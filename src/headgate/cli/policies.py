"""``headgate policies``: list the policies and placements."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.text import Text

from headgate.cli.output import PlainConsole, say, styled
from headgate.core import PLACEMENTS, POLICIES, Placement, Policy
from headgate.core.registry import parameters_of


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
    return ", ".join(
        f"{each.name}={each.described.removeprefix('a ').upper() if each.default is None else each.default}"
        for each in parameters_of(kind)
    )


def _entries(known: dict[str, type[Policy]] | dict[str, type[Placement]]) -> list[dict[str, object]]:
    return [
        {
            "name": name,
            "summary": kind.summary,
            "paper": kind.paper,
            "features": list(kind.needs),
            "parameters": {each.name: each.default for each in parameters_of(kind)},
        }
        for name, kind in known.items()
    ]
