"""Make a pipeline file of the Spark models in a dbt manifest (``target/manifest.json``); dbt itself is not needed.

Sources and seeds become streams and dimensions of files, models become tables: views and ephemeral models, too, unless
dbt has written them into the queries that read them. Options stand in ``meta`` of models and sources, directly or under
``headgate``. What cannot be taken over is named with its file and line, and so is what is built on it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from headgate.core import DeclarationError
from headgate.warehouse.declare.sql_text import SqlToken, sql_tokens
from headgate.warehouse.pipelines.dbt_incremental import for_whole, is_for_whole
from headgate.warehouse.pipelines.dbt_lines import where
from headgate.warehouse.pipelines.project import SOURCE_OPTIONS, TABLE_OPTIONS

_MODELS = ("table", "view", "incremental", "ephemeral", "materialized_view")
_FORMATS = ("json", "csv", "parquet", "orc", "text")
_REF = re.compile(r"""\{\{-?\s*ref\(\s*(?:['"][^'"]+['"]\s*,\s*)?['"]([^'"]+)['"][^)]*\)\s*-?\}\}""")
_SOURCE = re.compile(r"""\{\{-?\s*source\(\s*['"]([^'"]+)['"]\s*,\s*['"]([^'"]+)['"]\s*\)\s*-?\}\}""")
_CONFIG = re.compile(r"\{\{-?\s*config\(.*?\)\s*-?\}\}|\{#.*?#\}", re.DOTALL)


class _NotTakenError(DeclarationError):
    """A node of the manifest cannot be taken over, for the reason in the text; ``at`` is a pattern of its code."""

    def __init__(self, text: str, at: str = "") -> None:
        super().__init__(text)
        self.at = at


@dataclass(slots=True)
class ImportedPipeline:
    """``text`` is the pipeline file; ``taken`` are the names in it, ``left`` is what is not, with the reason."""

    text: str
    taken: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


def import_manifest(file: Path) -> ImportedPipeline:
    """The pipeline of the manifest in ``file``; DeclarationError if that is no manifest."""
    manifest = _read(file)
    return _Import(manifest, file).pipeline()


def _read(file: Path) -> dict[str, Any]:
    try:
        manifest = json.loads(file.read_text("utf-8"))
    except OSError as error:
        raise DeclarationError(f"cannot read the manifest {file}: {error.strerror}") from None
    except ValueError as error:
        raise DeclarationError(f"{file} is not a manifest of dbt, which is JSON: {error}") from None
    if not isinstance(manifest, dict) or not isinstance(manifest.get("nodes"), dict) or "metadata" not in manifest:
        raise DeclarationError(f"{file} is not a manifest of dbt: there are no nodes in it; it is target/manifest.json")
    for wrong in _wrong_shapes(manifest):
        raise DeclarationError(f"{file} is not a manifest as dbt writes it: {wrong}. Make it anew with dbt compile")
    return manifest


def _wrong_shapes(manifest: Mapping[str, Any]) -> Iterator[str]:
    """What of a manifest is no object or no text where dbt writes one."""
    for part in ("metadata", "nodes", "sources", "macros"):
        entries = manifest.get(part) or {}
        if not isinstance(entries, dict):
            yield f"{part!r} is to be an object; got {type(entries).__name__}"
            continue
        for key, node in entries.items() if part in ("nodes", "sources") else ():
            if not isinstance(node, dict):
                yield f"{key!r} in {part!r} is to be an object; got {type(node).__name__}"
                continue
            for name in ("name", "resource_type"):
                if not isinstance(node.get(name), str):
                    yield f"{key!r} is to have a text as {name!r}; got {node.get(name)!r}"
            for name in ("config", "depends_on", "meta", "columns", "external"):
                if not isinstance(node.get(name) or {}, dict):
                    yield f"{name!r} of {key!r} is to be an object; got {type(node[name]).__name__}"


class _Import:
    def __init__(self, manifest: Mapping[str, Any], file: Path) -> None:
        self._metadata: Mapping[str, Any] = manifest["metadata"]
        self._nodes: dict[str, Mapping[str, Any]] = {**manifest.get("sources", {}), **manifest["nodes"]}
        self._macros: Mapping[str, Mapping[str, Any]] = manifest.get("macros") or {}
        self._file = file
        # The manifest lies in the folder target of the project.
        self._root = file.resolve().parent.parent
        #: {id: the name in the pipeline}; and of relations as they are written in compiled code, in lower case
        self._names: dict[str, str] = {}
        self._relations: dict[tuple[str, ...], str] = {}
        self._left: dict[str, str] = {}

    def pipeline(self) -> ImportedPipeline:
        lines: list[str] = []
        taken: list[str] = []
        for key in self._order():
            node = self._nodes[key]
            try:
                name = self._name(node)
                declared = self._declared(key, node, name)
            except _NotTakenError as error:
                place = where(node, self._root, error.at)
                self._left[key] = f"{place}: {node['resource_type']} {node['name']!r}: {error}"
                continue
            self._names[key] = name
            if relation := node.get("relation_name"):
                self._relations[tuple(part.lower() for part in _parts(relation))] = name
            if declared:
                lines.append(f"# {_file(node)}\n{declared}")
                taken.append(name)
        project = re.sub(r"[^A-Za-z0-9_.-]", "_", str(self._metadata.get("project_name") or "dbt"))
        begin = f'"""Made from the dbt project {project!r} by headgate import-dbt."""\n\nimport headgate as hg\n\n'
        text = f"{begin}wh = hg.Warehouse({project!r})\n\n" + "\n".join(lines)
        left = list(self._left.values())
        if left:
            text += "\n# Not taken over:\n" + "".join(f"# {line}\n" for line in left)
        return ImportedPipeline(text, taken, left)

    def _order(self) -> list[str]:
        """Sources, seeds and models, each after what it is built on."""
        kinds = ("source", "seed", "model", "snapshot")
        wanted = {key: node for key, node in self._nodes.items() if node.get("resource_type") in kinds}
        feeding = {
            key: [on for on in (node.get("depends_on") or {}).get("nodes", []) if on in wanted]
            for key, node in wanted.items()
            if (node.get("config") or {}).get("enabled", True)
        }
        try:
            return list(TopologicalSorter(feeding).static_order())
        except CycleError as error:
            raise DeclarationError(
                f"{self._file}: models are built on each other in a circle: {error.args[1]}"
            ) from None

    def _name(self, node: Mapping[str, Any]) -> str:
        name = str(node.get("alias") or node["name"])
        taken = {each.lower() for each in self._names.values()}
        if name.lower() in taken and node["resource_type"] == "source":
            name = f"{node['source_name']}_{name}"
        if name.lower() in taken:
            raise _NotTakenError(f"the name {name!r} is taken: give it an alias")
        return name

    def _declared(self, key: str, node: Mapping[str, Any], name: str) -> str:
        """A declaration in Python; empty for what is written into the queries of others."""
        blocked = [on for on in (node.get("depends_on") or {}).get("nodes", []) if on in self._left]
        if blocked:
            name = self._nodes[blocked[0]]["name"]
            at = rf"\b(?:ref|source)\([^)]*['\"]{re.escape(name)}['\"]"
            raise _NotTakenError(f"it is built on {name!r}, which is not taken over", at)
        match node["resource_type"]:
            case "source":
                return self._source(node, name)
            case "seed":
                return self._seed(node, name)
            case "model":
                return self._model(key, node, name)
        raise _NotTakenError("there is nothing like it here; keep the newest rows by a model instead")

    # --- files ------------------------------------------------------------------------------------------------

    def _source(self, node: Mapping[str, Any], name: str) -> str:
        options = _options(node, (*SOURCE_OPTIONS, "path", "format", "options"))
        external = node.get("external") or {}
        path = options.pop("path", None) or external.get("location")
        if not path:
            raise _NotTakenError("it is not known where its rows come from: state path and format in its meta")
        form = str(options.pop("format", None) or external.get("file_format") or "json").lower()
        if form not in _FORMATS:
            raise _NotTakenError(f"its format {form!r} is not one of {', '.join(_FORMATS)}")
        made = {"format": form, "schema": options.pop("schema", None) or _columns(node)}
        made |= {each: options.pop(each) for each in ("order", "settle", "recursive", "options") if each in options}
        if not made["schema"] and form != "text":
            raise _NotTakenError("its columns have no data_type: state them, or the schema in its meta")
        time = options.pop("time", None) or node.get("loaded_at_field")
        files = f"hg.Files({_call(self._path(path), **made)})"
        if not time:
            priority = options.get("priority", 1.0)
            return f"wh.dimension({name!r}, {files}, priority={priority!r})\n"
        return f"wh.stream({name!r}, {files}, {_call(time=time, **options)})\n"

    def _seed(self, node: Mapping[str, Any], name: str) -> str:
        schema = _columns(node)
        if not schema:
            raise _NotTakenError("its columns have no data_type: state them in its properties")
        file = self._path(node["original_file_path"])
        folder, base = os.path.split(file)
        files = f"hg.Files({_call(folder, format='csv', schema=schema, pattern=base)})"
        return f"wh.dimension({name!r}, {files})\n"

    def _path(self, path: str) -> str:
        return path if "://" in path or os.path.isabs(path) else str(self._root / path)

    # --- models -----------------------------------------------------------------------------------------------

    def _model(self, key: str, node: Mapping[str, Any], name: str) -> str:
        if node.get("language", "sql") != "sql":
            text = "it is written in Python, as a function of dbt's own: declare it with wh.table"
            raise _NotTakenError(text, r"\bdef model\(")
        kind = (node.get("config") or {}).get("materialized", "view")
        if kind not in _MODELS:
            text = f"it is materialized as {kind!r}; taken over are {', '.join(_MODELS)}"
            raise _NotTakenError(text, r"\bmaterialized\s*=")
        if kind == "ephemeral" and self._is_inlined(key):
            return ""
        query = self._query(node, kind)
        options = {"time": None, **_options(node, TABLE_OPTIONS)}
        comment = str(node.get("description") or "")
        return f"wh.sql({name!r}, {_literal(query)}, {_call(**options, comment=comment or None)})\n"

    def _is_inlined(self, key: str) -> bool:
        """Whether all models that read an ephemeral one are compiled, so that they have its query in them."""
        readers = [
            node
            for node in self._nodes.values()
            if node.get("resource_type") == "model" and key in (node.get("depends_on") or {}).get("nodes", [])
        ]
        return all(node.get("compiled_code") for node in readers)

    def _query(self, node: Mapping[str, Any], kind: str) -> str:
        compiled = str(node.get("compiled_code") or "")
        query = compiled or self._rendered(node)
        own = tuple(part.lower() for part in _parts(node.get("relation_name") or ""))
        text, at = "", 0
        for first, last, parts in _qualified_names(query):
            if parts == own and own:
                text = "its compiled code reads the table itself: run dbt compile --full-refresh"
                raise _NotTakenError(text, r"\{\{-?\s*this\b")
            if parts in self._relations:
                text += query[at:first] + self._relations[parts]
                at = last
        if compiled and kind == "incremental" and not self._is_for_whole(node, compiled):
            raise _NotTakenError(
                "its compiled code may be the one for an increment, which would leave out rows from before: "
                "run dbt compile --full-refresh, then import the manifest again",
                r"\bis_incremental\(",
            )
        return (text + query[at:]).strip().rstrip(";").strip()

    def _is_for_whole(self, node: Mapping[str, Any], compiled: str) -> bool:
        if (node.get("config") or {}).get("full_refresh") is True or self._is_full_refresh:
            return True
        macros = (node.get("depends_on") or {}).get("macros", [])
        code = _CONFIG.sub("", str(node.get("raw_code") or ""))
        return is_for_whole(code, compiled, macros, self._macros)

    @cached_property
    def _is_full_refresh(self) -> bool:
        """Whether dbt was told so when it made the manifest; its results, beside the manifest, say that."""
        try:
            results = json.loads((self._file.parent / "run_results.json").read_text("utf-8"))
            same = results["metadata"]["invocation_id"] == self._metadata["invocation_id"]
            return bool(same and results["args"]["full_refresh"])
        except (OSError, ValueError, TypeError, LookupError):
            return False

    def _rendered(self, node: Mapping[str, Any]) -> str:
        """The query of a model that dbt has not compiled, if there is nothing in it but references."""
        query = for_whole(_CONFIG.sub("", str(node.get("raw_code") or "")))
        by_name = {(self._nodes[key]["resource_type"], self._nodes[key]["name"]): key for key in self._names}
        sources = {
            (n.get("source_name"), n["name"]): self._names[k] for k, n in self._nodes.items() if k in self._names
        }

        def model(match: re.Match[str]) -> str:
            key = by_name.get(("model", match[1])) or by_name.get(("seed", match[1]))
            return match[0] if key is None else self._names[key]

        query = _REF.sub(model, query)
        query = _SOURCE.sub(lambda match: sources.get((match[1], match[2]), match[0]), query)
        others = _SOURCE.sub("", _REF.sub("", query))
        if "{{" in others or "{%" in others:
            tag = re.search(r"\{\{.*?\}\}|\{%.*?%\}", others, re.DOTALL)
            text = "it has Jinja that only dbt understands: run dbt compile first"
            raise _NotTakenError(text, re.escape(tag[0]) if tag else "")
        for unknown in _REF.finditer(query):
            text = f"it refers to {unknown[1]!r}, which is no model or seed that the manifest has"
            raise _NotTakenError(text, re.escape(unknown[0]))
        for unknown in _SOURCE.finditer(query):
            text = f"it refers to the source {unknown[1]}.{unknown[2]}, which the manifest does not have"
            raise _NotTakenError(text, re.escape(unknown[0]))
        return query


def _options(node: Mapping[str, Any], known: tuple[str, ...]) -> dict[str, Any]:
    """What meta says of a node: under ``headgate``, or directly."""
    meta = {**(node.get("meta") or {}), **((node.get("config") or {}).get("meta") or {})}
    own = meta.get("headgate")
    if not isinstance(own, Mapping):
        return {key: value for key, value in meta.items() if key in known}
    if unknown := [key for key in own if key not in known]:
        text = f"its meta has the option {unknown[0]!r}; known are {', '.join(known)}"
        raise _NotTakenError(text, rf"\b{re.escape(str(unknown[0]))}\b")
    return dict(own)


def _columns(node: Mapping[str, Any]) -> str:
    columns = (node.get("columns") or {}).values()
    if not columns or not all(column.get("data_type") for column in columns):
        return ""
    return ", ".join(f"{column['name']} {column['data_type']}" for column in columns)


def _file(node: Mapping[str, Any]) -> str:
    return str(node.get("original_file_path") or node.get("path") or "manifest")


def _parts(relation: str) -> list[str]:
    return [part.strip('`"') for part in re.findall(r'`[^`]*`|"[^"]*"|[^.]+', relation)]


def _qualified_names(query: str) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    """Names with their qualifiers, as ``schema.table``: where they begin and end, and their parts in lower case."""
    tokens = [*sql_tokens(query), SqlToken("", 0)]
    at = 0
    while at < len(tokens) - 1:
        parts, first = [tokens[at].name.lower()], at
        while parts[0] and tokens[at + 1].text == "." and tokens[at + 2].name:
            at += 2
            parts.append(tokens[at].name.lower())
        if parts[0]:
            yield tokens[first].start, tokens[at].end, tuple(parts)
        at += 1


def _call(*values: Any, **named: Any) -> str:
    """The arguments of a call, without options that are None, except the time of a table without one."""
    shown = [f"{key}={value!r}" for key, value in named.items() if value is not None or key == "time"]
    return ", ".join([*map(repr, values), *shown])


def _literal(query: str) -> str:
    """A query as a text of several lines, where that can be written."""
    if "\\" in query or '"""' in query or query.endswith('"'):
        return repr(query)
    return f'"""\n{query}\n"""'
