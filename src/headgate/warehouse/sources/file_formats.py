"""The formats that files can have, and what each lets the user say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.core.errors import DeclarationError
from headgate.warehouse.sources.column_formats import orc_is_complete, parquet_is_complete, read_orc, read_parquet
from headgate.warehouse.sources.file_batch import Batch
from headgate.warehouse.sources.line_formats import read_csv, read_json, read_text
from headgate.warehouse.sources.schema import Column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: options of Spark's readers that would change which rows are read or whether bad ones are noticed
_OURS = {
    *("path", "pathglobfilter", "recursivefilelookup", "modifiedbefore", "modifiedafter", "maxfilespertrigger"),
    *("ignoremissingfiles", "ignorecorruptfiles", "mergeschema", "inferschema", "enforceschema", "mode"),
    *("columnnameofcorruptrecord", "multiline", "wholetext", "linesep", "encoding", "charset", "comment"),
    *("singlevariantcolumn", "columnpruning"),
}
_WHY_NOT = {
    "multiline": "a row is one line",
    "wholetext": "a row is one line",
    "linesep": "lines end in \\n, \\r\\n or \\r",
    "encoding": "text is UTF-8",
    "charset": "text is UTF-8",
    "comment": "every line that is not blank is a row",
    "pathglobfilter": "use pattern",
    "recursivefilelookup": "use recursive",
}


def _whole(_path: str) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class FileFormat:
    """How files of one format are read, and how to tell from its content that one is complete."""

    name: str
    read: Callable[[SparkSession, Batch], DataFrame]
    complete: Callable[[str], bool] = _whole
    default_schema: str = ""
    nested: bool = True

    def check_columns(self, columns: Sequence[Column], where: str) -> None:
        if self.default_schema and [(c.name, c.kind) for c in columns] != [("value", "string")]:
            raise DeclarationError(f"{where}: the format text has the schema 'value string'; leave the schema out")
        for column in columns:
            if not self.nested and column.kind in ("array", "map", "struct", "variant", "binary"):
                raise DeclarationError(
                    f"{where}: the column {column.name!r} is {column.type}, which {self.name} files cannot hold; "
                    "declare it as string"
                )

    def checked_options(self, options: Mapping[str, object], where: str) -> dict[str, str]:
        """The user's options as Spark takes them, under their one spelling."""
        checked = {}
        for name, value in options.items():
            if name.lower() in _OURS or (name.lower() == "header" and self.name != "csv"):
                why = _WHY_NOT.get(name.lower(), "Headgate sets it itself")
                raise DeclarationError(f"{where}: the option {name!r} cannot be set: {why}")
            spelling = {"delimiter": "sep"}.get(name.lower(), name.lower() if name.lower() in _SPELLED else name)
            checked[spelling] = str(value).lower() if isinstance(value, bool) else str(value)
        return checked


#: options that Headgate reads, too
_SPELLED = ("header", "sep", "quote", "escape")

FORMATS = {
    format_.name: format_
    for format_ in (
        FileFormat("json", read_json),
        FileFormat("csv", read_csv, nested=False),
        FileFormat("parquet", read_parquet, parquet_is_complete),
        FileFormat("orc", read_orc, orc_is_complete),
        FileFormat("text", read_text, default_schema="value string"),
    )
}
