"""What policies and placements have in common: users choose them by name, with parameters."""

from __future__ import annotations

from dataclasses import fields
from typing import ClassVar


class Choosable:
    """Base of the classes that users choose by name; subclasses are frozen dataclasses of their parameters."""

    name: ClassVar[str]
    """Short name, as on the command line; left out, the name of the class."""
    summary: ClassVar[str] = ""
    """What it does, in one line."""
    paper: ClassVar[str] = ""
    """Where the rule comes from."""
    needs: ClassVar[tuple[str, ...]] = ()
    """The features that it reads."""

    def __init_subclass__(cls) -> None:
        if not hasattr(cls, "name"):
            cls.name = cls.__name__

    def __str__(self) -> str:
        """The name with the parameters that differ from their defaults, as one would write it to choose it."""
        changed = [
            f"{f.name}={getattr(self, f.name)}"
            for f in fields(self)  # type: ignore[arg-type]
            if getattr(self, f.name) != f.default
        ]
        return f"{self.name}:{','.join(changed)}" if changed else self.name
