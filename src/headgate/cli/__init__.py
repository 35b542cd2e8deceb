"""The command line: parse, call the library once, print, exit.

Exit status: 0 success, 1 failure, 2 wrong usage (an unknown name, an invalid value), 3 after ``run --once`` if not all
tables are fresh. Data goes to standard output, progress and errors to standard error.
"""

from __future__ import annotations

import errno
import sys
import traceback

import typer

from headgate import __version__
from headgate.cli.begin import demo, init
from headgate.cli.bound import bound
from headgate.cli.control import backfill, change, explain, pause, refresh, resume, stop
from headgate.cli.imports import import_dbt
from headgate.cli.output import flush, say, say_error
from headgate.cli.policies import policies
from headgate.cli.read import query, status
from headgate.cli.run import check, graph, run
from headgate.cli.simulate import simulate
from headgate.cli.watching import top, ui
from headgate.core import DeclarationError, HeadgateError, UserCodeError

#: what a disk says that takes no more: it is full, or what this user or one file may take of it is
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

app = typer.Typer(
    name="headgate",
    help="Keep many streaming tables fresh when there are too few resources to update all of them at once.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(demo)
app.command()(init)
app.command()(check)
app.command()(graph)
app.command()(run)
app.command()(status)
app.command()(query)
app.command()(explain)
app.command()(top)
app.command()(ui)
app.command()(pause)
app.command()(resume)
app.command()(refresh)
app.command()(backfill)
app.command("set")(change)
app.command()(stop)
app.command()(simulate)
app.command()(bound)
app.command()(policies)
app.command("import-dbt")(import_dbt)


def _print_version(wanted: bool) -> None:
    if wanted:
        say(f"headgate {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
) -> None:
    """Keep many streaming tables fresh when there are too few resources to update all of them at once."""


def main() -> None:
    """The ``headgate`` command."""
    # A policy that the user names by its path is found in the current folder, too. Last, so that a file which happens
    # to lie there does not take the place of an installed module.
    sys.path.append("")
    try:
        try:
            app()
        finally:
            flush()
    except DeclarationError as error:
        say_error(f"headgate: {error}")
        sys.exit(2)
    except HeadgateError as error:
        told = "Traceback (most recent call last)" in str(error)
        if isinstance(error, UserCodeError) and error.__cause__ is not None and not told:
            say_error("".join(traceback.format_exception(error.__cause__)).rstrip())
        say_error(f"headgate: {error}")
        sys.exit(1)
    except PermissionError as error:
        say_error(f"headgate: this user may not read or write {error.filename}: {error.strerror}; ask its owner")
        sys.exit(1)
    except BrokenPipeError:  # whoever read what is printed has seen enough
        sys.exit(1)
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        say_error(f"headgate: cannot write{f' {error.filename}' if error.filename else ''}: {error.strerror}")
        sys.exit(1)


__all__ = ["app", "main"]
