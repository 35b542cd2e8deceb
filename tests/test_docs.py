"""The examples in the documents run and print what is shown, every name in them exists, and nothing is undocumented.

A comment above a block says what the block is and how its output is compared. Readers do not see it. Its parts are
separated by semicolons:

    <!-- file: shop.toml -->     the next block is a file of that name, in the folder that the examples run in
    <!-- output -->              the next block is what the python block before printed
    <!-- some lines -->          only some of the printed lines are shown, in order; each one shown must be printed
    <!-- numbers vary -->        numbers, with their units, may differ from those shown
    <!-- numbers vary: a, b -->  the same, but only in lines that begin with one of these words

Without such a part, all that is printed must be shown, apart from the width of spaces. Blocks by language:

    ```toml                      always a file
    ```python                    runs, all blocks of a document in order and in one namespace
    ```console                   `$ headgate ...` runs in the same folder and exits with 0; the lines after it are what
                                 it prints on a terminal of 80 columns; without such lines the output is not compared

Reference tables are marked by comments, too:

    <!-- keys: Table -->         the next table has one row per key that a scenario file may state there
    <!-- fields: Compared -->    the next table has one row per field of the JSON output
    <!-- options: simulate -->   the next table has one row per option of the command
    <!-- features -->            the next table has one row per feature
"""

from __future__ import annotations

import csv
import io
import itertools
import math
import os
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
import typer
from typer.testing import CliRunner

from headgate.cli import app
from headgate.cli.live import print_summary
from headgate.core.consumption import Consumption
from headgate.core.features import FEATURES, ChangedBy
from headgate.core.latency import LatencySummary
from headgate.core.observe import TABLE_FEATURES
from headgate.core.placement import Placement
from headgate.core.policy import Policy
from headgate.core.registry import PLACEMENTS, POLICIES
from headgate.sim import Compared, NodeRow, OperatorModel, OperatorScenario, QueryModel, Slowdown, Table, TableScenario
from headgate.sim.operators.executor import READINGS
from headgate.sim.scenario_file import LOOPS, PATTERNS
from headgate.sim.strict import describe
from tests.warehouse.control_helpers import statistics_of

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
DOCUMENTS = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
SCENARIOS = sorted((ROOT / "examples").rglob("*.toml"))


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def invoke(*arguments: str) -> str:
    """What `headgate` prints for these arguments on a terminal of 80 columns; it must succeed."""
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "80"})
    assert result.exit_code == 0, f"headgate {shlex.join(arguments)}: {result.exception!r}\n{result.output}"
    return result.stdout


#: commands with a Spark of their own, which must not be that of the other tests
STARTS_SPARK = ("run", "demo")


def run_alone(*arguments: str) -> str:
    """As ``invoke``, in a process of its own."""
    command = [sys.executable, "-m", "headgate.cli", *arguments]
    environment = {**os.environ, "COLUMNS": "80"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, f"headgate {shlex.join(arguments)}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def run_until_fresh(*arguments: str) -> str:
    """As ``run_alone``, for a command with a Spark of its own.

    How much is done in the time that a document shows depends on the machine. The examples that follow read the tables,
    so the command is repeated with more time until every table has been updated once.
    """
    printed = run_alone(*arguments)
    if "--for" not in arguments:
        return printed
    place = arguments.index("--for") + 1
    for time in ("1 min", "5 min", "20 min"):
        if not tables_without_updates(printed):
            break
        printed = run_alone(*arguments[:place], time, *arguments[place + 1 :])
    assert not tables_without_updates(printed), printed
    return printed


def tables_without_updates(summary: str) -> list[str]:
    """The tables that were never updated, by the summary of a run: the first lines below the headings."""
    lines = [line.split() for line in summary.splitlines()]
    start = next(number for number, words in enumerate(lines) if words[:2] == ["table", "prio"])
    updates = lines[start].index("upd")
    rows = itertools.takewhile(lambda words: words and words[-1] in STATES, lines[start + 1 :])
    return [words[0] for words in rows if words[updates] == "0"]


STATES = ("ok", "new", "updating", "paused", "failing", "held", "waiting", "stopped")


# --- examples run -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rules:
    """How the output that a document shows is compared with what was printed."""

    some_lines: bool = False
    #: numbers may differ in lines that begin with one of these words; ("",) means all lines
    varying: tuple[str, ...] = ()


@dataclass(frozen=True)
class Block:
    """A fenced block with what the comment above it says."""

    line: int
    language: str
    text: str
    file: str | None = None
    is_output: bool = False
    rules: Rules = Rules()


BLOCK = re.compile(
    r"^(?:<!-- (?P<comment>[^\n]+) -->\n+)?```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


def blocks(markdown: str) -> list[Block]:
    return [
        read_comment(
            Block(markdown.count("\n", 0, found.start()) + 1, found["language"], found["text"]), found["comment"]
        )
        for found in BLOCK.finditer(markdown)
    ]


def read_comment(block: Block, comment: str | None) -> Block:
    for part in comment.split(";") if comment else ():
        word, _, value = (text.strip() for text in part.partition(":"))
        match word:
            case "file":
                block = replace(block, file=value)
            case "output":
                block = replace(block, is_output=True)
            case "some lines":
                block = replace(block, rules=replace(block.rules, some_lines=True))
            case "numbers vary":
                words = tuple(each.strip() for each in value.split(","))
                block = replace(block, rules=replace(block.rules, varying=words))
            case _:
                pytest.fail(f"line {block.line}: a comment above a block cannot say {part.strip()!r}")
    return block


def commands(console: str) -> list[tuple[str, str]]:
    """The commands of a console block, each with what the block says that it prints."""
    parts = re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]
    return [(command, printed) for command, _, printed in (part.partition("\n") for part in parts)]


#: a number with its unit; `-` and `now` stand in the place of a number that there is not
NUMBER = re.compile(r"(?<![^\W\d])\+?\d[\d.,:]*(?:T[\d.]+Z)?(?:%|µs|ms|[kMGsmh](?!\w))?|(?<!\S)(?:-|now)(?!\S)")


def comparable(text: str, varying: tuple[str, ...]) -> list[str]:
    """The lines that are not empty, without superfluous spaces, and with `#` for numbers that may differ."""
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    return [NUMBER.sub("#", line) if varying and line.startswith(varying) else line for line in lines]


def assert_printed(want: str, got: str, where: str, rules: Rules) -> None:
    wanted, printed = comparable(want, rules.varying), comparable(got, rules.varying)
    if not wanted:
        return
    if rules.some_lines:
        rest = iter(printed)
        missing = [line for line in wanted if line not in rest]
    else:
        missing = [] if " ".join(wanted) == " ".join(printed) else wanted
    if missing:
        pytest.fail(f"{where} says that this is printed:\n{want}\nbut it is:\n{got}\nnot found: {missing[0]!r}")


class Example:
    """The folder and the namespace that the blocks of one document share."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.monkeypatch = monkeypatch
        self.namespace: dict[str, Any] = {"__name__": "example"}
        self.printed = ""

    def run(self, block: Block, where: str) -> None:
        if block.file is not None:
            (self.folder / block.file).write_text(block.text, encoding="utf-8")
        if block.is_output:
            assert_printed(block.text, self.printed, where, block.rules)
        elif block.language == "python":
            self.printed = self._execute(block.text, where)
        elif block.language == "console":
            for command, printed in commands(block.text):
                self._command(command, printed, where, block.rules)

    def _execute(self, text: str, where: str) -> str:
        with self._importable(), redirect_stdout(io.StringIO()) as out:
            # Without dont_inherit, examples would be compiled under this file's own __future__ imports.
            exec(compile(text, where, "exec", dont_inherit=True), self.namespace)
        return out.getvalue()

    def _command(self, command: str, printed: str, where: str, rules: Rules) -> None:
        words = shlex.split(command)
        if words[0] != "headgate":
            return
        with self._importable():  # as the command does for the folder that it is called in
            if words[1] not in STARTS_SPARK:
                assert_printed(printed, invoke(*words[1:]), f"{where}, $ {command}", rules)
                return
            assert_printed(printed, run_until_fresh(*words[1:]), f"{where}, $ {command}", rules)

    @contextmanager
    def _importable(self) -> Iterator[None]:
        """The folder's own modules can be imported, and are forgotten afterwards."""
        known = set(sys.modules)
        with self.monkeypatch.context() as patch:
            patch.syspath_prepend(self.folder)
            yield
        for name in set(sys.modules) - known:
            if (self.folder / f"{name}.py").exists():
                del sys.modules[name]


@pytest.mark.slow
@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_every_example_runs_and_prints_what_the_document_says(
    document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    example = Example(tmp_path, monkeypatch)
    for block in blocks(document.read_text("utf-8")):
        example.run(block, f"{named(document)} line {block.line}")


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_every_toml_block_is_a_named_file(document: Path) -> None:
    assert [
        block.line for block in blocks(document.read_text("utf-8")) if block.language == "toml" and not block.file
    ] == []


@pytest.mark.parametrize(
    ("updates", "missing"), [((8, 3), []), ((0, 3), ["alarms"]), ((0, 0), ["alarms", "hours"])], ids=str
)
def test_a_run_was_long_enough_if_every_table_was_updated(updates: tuple[int, int], missing: list[str]) -> None:
    rows = [statistics_of(name, updates=n) for name, n in zip(("alarms", "hours"), updates, strict=True)]
    with redirect_stdout(io.StringIO()) as printed:
        print_summary("sensors", Path("sensors.warehouse"), rows, 20.0, [])
    assert tables_without_updates(printed.getvalue()) == missing


SOME, VARYING, SPEED = Rules(some_lines=True), Rules(varying=("",)), Rules(varying=("speed",))


@pytest.mark.parametrize(
    ("want", "got", "rules", "fails"),
    [
        pytest.param("a  b\n", "a b\n", Rules(), False, id="spacing does not matter"),
        pytest.param("a b c\n", "a b\nc\n", Rules(), False, id="wrapping does not matter"),
        pytest.param("", "whatever\n", Rules(), False, id="nothing shown, nothing compared"),
        pytest.param("10.3 s\n", "10.4 s\n", Rules(), True, id="another number"),
        pytest.param("a\nb\n", "a\nb\nc\n", Rules(), True, id="a line is not shown"),
        pytest.param("a\nc\n", "a\nb\nc\n", SOME, False, id="some lines"),
        pytest.param("c\na\n", "a\nb\nc\n", SOME, True, id="some lines in another order"),
        pytest.param("a\nd\n", "a\nb\nc\n", SOME, True, id="some lines, and one that was not printed"),
        pytest.param("a 1\n", "a 2\n", SOME, True, id="some lines with another number"),
        pytest.param("a 10.3s\n", "a 9ms\n", VARYING, False, id="numbers vary"),
        pytest.param("a 10.3s\n", "a -\n", VARYING, False, id="numbers vary, and one is missing"),
        pytest.param("runs/20261115T100000.5Z.x\n", "runs/20261116T110000.7Z.x\n", VARYING, False, id="moments vary"),
        pytest.param("a 10.3s\n", "b 10.3s\n", VARYING, True, id="numbers vary, and a word differs"),
        pytest.param("a 10.3s b\n", "a 10.3s\n", VARYING, True, id="numbers vary, and a word is missing"),
        pytest.param("t1 5\n", "t2 5\n", VARYING, True, id="a digit of a name is no number"),
        pytest.param("speed 5\nsize 3\n", "speed 6\nsize 3\n", SPEED, False, id="numbers vary in one line"),
        pytest.param("speed 5\nsize 3\n", "speed 6\nsize 4\n", SPEED, True, id="a number varies in another line"),
    ],
)
def test_what_is_printed_is_compared(want: str, got: str, rules: Rules, fails: bool) -> None:
    if fails:
        with pytest.raises(pytest.fail.Exception):
            assert_printed(want, got, "here", rules)
    else:
        assert_printed(want, got, "here", rules)


@pytest.mark.parametrize(
    ("comment", "block"),
    [
        pytest.param("", Block(1, "text", "a\n"), id="no comment"),
        pytest.param("<!-- file: a.toml -->\n", Block(1, "text", "a\n", file="a.toml"), id="a file"),
        pytest.param(
            "<!-- output; some lines -->\n\n", Block(1, "text", "a\n", is_output=True, rules=SOME), id="output"
        ),
        pytest.param("<!-- numbers vary -->\n", Block(1, "text", "a\n", rules=VARYING), id="all numbers"),
        pytest.param(
            "<!-- numbers vary: speed, size -->\n",
            Block(1, "text", "a\n", rules=Rules(varying=("speed", "size"))),
            id="some numbers",
        ),
    ],
)
def test_a_comment_says_how_a_block_is_compared(comment: str, block: Block) -> None:
    assert blocks(f"{comment}```text\na\n```\n") == [block]


def test_a_comment_above_a_block_that_says_something_else_is_refused() -> None:
    with pytest.raises(pytest.fail.Exception, match="anything goes"):
        blocks("<!-- output; anything goes -->\n```text\na\n```\n")


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_output_is_shown_as_it_was_printed_without_dots_for_what_is_left_out(document: Path) -> None:
    shown = [block for block in blocks(document.read_text("utf-8")) if block.language in ("", "console", "text")]
    assert [block.line for block in shown if "..." in block.text] == []


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS, ids=named)
def test_every_example_scenario_runs(scenario: Path) -> None:
    assert scenario.stem in invoke("simulate", str(scenario), "--events", "200", "--nodes", "0")


def test_the_picture_shows_every_measure_that_the_command_prints() -> None:
    city = str(ROOT / "examples" / "scenarios" / "city.toml")
    printed = invoke("simulate", city, "--events", "50", "--nodes", "0", "--policy", "fifo")
    _, _, table = printed.partition("\ncity")
    measures = [line.split("  ")[0] for line in table.splitlines()[2:] if "  " in line]
    picture = (DOCS / "pictures" / "simulate.svg").read_text("utf-8").replace("&#160;", " ")
    assert measures[0] == "relative lateness"
    assert [measure for measure in measures if measure not in picture] == []


def test_the_chart_is_drawn_from_the_recorded_results() -> None:
    chart = runpy.run_path(str(ROOT / "scripts" / "make_pictures.py"))["chart"]()
    with (DOCS / "pictures" / "spark_policies.csv").open(encoding="utf-8") as file:
        recorded = list(csv.DictReader(file))
    drawn = (DOCS / "pictures" / "spark_policies.svg").read_text("utf-8")
    for svg in (chart, drawn):
        texts = re.findall(r"<text[^>]*>([^<]+)</text>", svg)
        assert [text for text in texts if re.fullmatch(r"[\d.]+ s", text)] == [
            f"{float(row['weighted staleness']):.1f} s" for row in recorded
        ]
        assert [row["policy"] for row in recorded if f"{row['policy']}, {row['placement']}" not in texts] == []


def test_a_picture_asks_no_other_host_for_anything() -> None:
    as_svg = runpy.run_path(str(ROOT / "scripts" / "make_pictures.py"))["as_svg"]
    svg = as_svg("\x1b[1mbold\x1b[0m and plain", title="headgate demo", name="example")
    assert "bold" in svg
    assert "url(http" not in svg


# --- names exist ------------------------------------------------------------------------------------------------

OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def options_of(command: Any) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts if option.startswith("--")}


def all_options() -> set[str]:
    """Also those that switch something off."""
    group: Any = typer.main.get_command(app)
    commands = [group, *group.commands.values()]
    off = {option for command in commands for parameter in command.params for option in parameter.secondary_opts}
    return {"--help", *off}.union(*(options_of(command) for command in commands))


def benchmark_options(capsys: pytest.CaptureFixture[str]) -> set[str]:
    from benchmarks.harness.command import main

    with pytest.raises(SystemExit):
        main(["--help"])
    return set(OPTION.findall(capsys.readouterr().out))


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_every_option_named_exists(document: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours, theirs = all_options(), benchmark_options(capsys)
    about_benchmarks = document.name == "benchmarks.md"
    unknown = [
        f"line {number}: {option}"
        for number, line in enumerate(document.read_text("utf-8").splitlines(), 1)
        for option in OPTION.findall(re.sub(r"<!--.*?-->|\|[-:| ]+\||dbt compile --[a-z-]+", "", line))
        if option not in (theirs if about_benchmarks or "python -m benchmarks" in line else ours)
    ]
    assert unknown == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_every_make_target_named_exists(document: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    wanted = re.findall(r"(?:`|^\$ )make ([a-z-]+)", document.read_text("utf-8"), re.MULTILINE)
    assert [target for target in wanted if target not in targets] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_every_module_named_exists(document: Path) -> None:
    """Paths such as `headgate.core.dispatch` or `headgate.core.policy.Policy`."""
    paths = set(re.findall(r"\bheadgate(?!\.(?:yml|id|lock|lease)\b)(?:\.\w+)+", document.read_text("utf-8")))
    assert sorted(path for path in paths if not _resolves(path)) == []


def _resolves(path: str) -> bool:
    import pkgutil

    try:
        pkgutil.resolve_name(path)
    except (ImportError, AttributeError):
        return False
    return True


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_every_link_to_a_part_of_a_document_leads_to_a_heading(document: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]*\.md)#([^)\s]+)\)", document.read_text("utf-8"))
    assert [f"{file}#{part}" for file, part in links if part not in anchors(document.parent / file)] == []


def anchors(document: Path) -> set[str]:
    """The names that the headings of a document can be linked by."""
    headings = re.findall(r"^#+ (.+)$", document.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS[1:], ids=named)
def test_the_readme_links_every_document(document: Path) -> None:
    assert f"]({named(document)})" in (ROOT / "README.md").read_text("utf-8")


# --- policies and placements ------------------------------------------------------------------------------------


def sections(document: str) -> dict[str, str]:
    """The sections of a document whose heading is a name in backticks, by that name."""
    parts = re.split(r"^#{2,3} (.+)\n", (DOCS / document).read_text("utf-8"), flags=re.MULTILINE)[1:]
    found = {}
    for heading, text in zip(parts[::2], parts[1::2], strict=True):
        if name := re.fullmatch(r"`([^`]+)`.*", heading):
            found[name[1]] = text
    return found


POLICY_SECTIONS = sections("policies.md")
PLACEMENT_SECTIONS = sections("placements.md")


def test_every_policy_has_a_section_and_every_section_a_policy() -> None:
    assert list(POLICY_SECTIONS) == list(POLICIES)


def test_every_placement_has_a_section_and_every_section_a_placement() -> None:
    assert list(PLACEMENT_SECTIONS) == list(PLACEMENTS)


def point(section: str, name: str) -> str:
    """The text of the list item `- **name.** ...` of a section, up to the next item."""
    found = re.search(rf"^- \*\*{name}\.\*\* (.*?)(?=^- \*\*|\n\n|\Z)", section, re.MULTILINE | re.DOTALL)
    assert found, f"no point '{name}' in:\n{section}"
    return " ".join(found[1].split())


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_section_has_all_its_points(name: str) -> None:
    for wanted in ("Idea", "Rule", "Features", "Good for", "Fails", "From"):
        assert point(POLICY_SECTIONS[name], wanted)


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_section_names_the_features_that_the_policy_reads(name: str) -> None:
    named_there = re.findall(r"`(\w+)`", point(POLICY_SECTIONS[name], "Features"))
    assert named_there == list(POLICIES[name].needs)


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_section_warns_if_and_only_if_the_policy_can_starve_a_node(name: str) -> None:
    assert ("forever" in point(POLICY_SECTIONS[name], "Fails")) == POLICIES[name].starves


@pytest.mark.parametrize("name", PLACEMENTS)
def test_a_placement_section_has_all_its_points(name: str) -> None:
    for wanted in ("Idea", "Rule", "Features", "Good for", "Fails", "From"):
        assert point(PLACEMENT_SECTIONS[name], wanted)


@pytest.mark.parametrize(
    ("section", "kind"),
    [
        *(pytest.param(POLICY_SECTIONS.get(name, ""), kind, id=f"policy {name}") for name, kind in POLICIES.items()),
        *(
            pytest.param(PLACEMENT_SECTIONS.get(name, ""), kind, id=f"placement {name}")
            for name, kind in PLACEMENTS.items()
        ),
    ],
)
def test_a_section_names_the_class_and_every_parameter(section: str, kind: type[Policy] | type[Placement]) -> None:
    wanted = [kind.__name__, *(field.name for field in fields(kind))]  # type: ignore[arg-type]
    assert [word for word in wanted if f"`{word}`" not in section] == []


# --- reference tables -------------------------------------------------------------------------------------------


def rows(document: str, comment: str) -> dict[str, list[str]]:
    """The rows of the table after `<!-- comment -->`: {word in backticks in the first cell: the other cells}."""
    _, found, after = (DOCS / document).read_text("utf-8").partition(f"<!-- {comment} -->\n")
    assert found, f"docs/{document} has no <!-- {comment} -->"
    lines = re.match(r"\n*((?:\|.*\n)+)", after)
    assert lines, f"no table after <!-- {comment} -->"
    table = {}
    for line in lines[1].splitlines()[2:]:
        first, *others = (cell.strip() for cell in line.strip("|").split(" | "))
        table[first.strip("` ")] = others
    return table


@dataclass(frozen=True)
class Reference:
    """What a table of keys must hold: the fields of a dataclass, some under other names, and keys read beside them."""

    owner: type[Any]
    beside: tuple[str, ...] = ()
    unwritten: tuple[str, ...] = ()


#: keys that the file's readers take for themselves stand ``beside``; fields that no file can state are ``unwritten``
REFERENCES = {
    "TableScenario": Reference(TableScenario, ("table",), ("tables",)),
    "Table": Reference(Table, ("count",)),
    "Slowdown": Reference(Slowdown),
    "OperatorScenario": Reference(OperatorScenario, ("query", "loop"), ("queries", "loop", "changes")),
    "QueryModel": Reference(QueryModel, ("count", "operator", "arrivals"), ("operators",)),
    "OperatorModel": Reference(OperatorModel, ("arrivals",), ("arrivals",)),
    **{kind.__name__: Reference(kind, ("pattern",)) for kind in PATTERNS.values()},
    **{kind.__name__: Reference(kind, ("kind",)) for kind in LOOPS.values()},
}


def written_name(field_name: str) -> str:
    return "class" if field_name == "importance_class" else field_name


@pytest.mark.parametrize("name", REFERENCES)
def test_the_reference_has_a_row_for_every_key_and_no_other(name: str) -> None:
    reference = REFERENCES[name]
    stated = {written_name(field.name) for field in fields(reference.owner) if field.name not in reference.unwritten}
    assert set(rows("simulator.md", f"keys: {name}")) == stated | set(reference.beside)


@pytest.mark.parametrize("name", REFERENCES)
def test_the_reference_gives_the_type_and_the_default_of_every_key(name: str) -> None:
    reference = REFERENCES[name]
    table = rows("simulator.md", f"keys: {name}")
    hints = get_type_hints(reference.owner)
    for field in fields(reference.owner):
        key = written_name(field.name)
        if field.name not in reference.unwritten and key not in reference.beside:
            kind, default, meaning = table[key]
            assert kind == type_in_words(hints[field.name]), key
            assert same_default(default, field), f"{key}: {default}"
            for choice in choices(hints[field.name]):
                assert f'`"{choice}"`' in meaning, key


def choices(kind: Any) -> tuple[str, ...]:
    for one in (kind, *get_args(kind)):  # also of those that may be left out
        if get_origin(one) is Literal:
            return get_args(one)
    return ()


def type_in_words(kind: Any) -> str:
    if choices(kind):
        return "choice"
    if kind is Consumption:  # written as text, and read by consumption_from
        return "text"
    return re.sub(r"^an? ", "", describe(kind).replace("each a ", "each "))


def same_default(text: str, field: Any) -> bool:
    if text in ("required", "none"):
        return field.default is (MISSING if text == "required" else None) and field.default_factory is MISSING
    value = field.default if field.default_factory is MISSING else field.default_factory()
    stated = tomllib.loads(f"value = {text.strip('`')}")["value"]
    if isinstance(value, tuple):
        return bool(stated == list(value))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return math.isclose(stated, value) or stated == value
    return bool(stated == value or stated == str(value))


def test_the_reference_has_a_row_for_every_key_of_all_scenarios() -> None:
    from headgate.sim import scenario_file

    assert tuple(rows("simulator.md", "keys: every scenario")) == scenario_file._ABOUT


@pytest.mark.parametrize("kind", [Compared, NodeRow, LatencySummary], ids=lambda kind: kind.__name__)
def test_every_field_of_the_json_output_is_described(kind: type[Any]) -> None:
    assert list(rows("simulator.md", f"fields: {kind.__name__}")) == [field.name for field in fields(kind)]


@pytest.mark.parametrize(("command", "document"), [("simulate", "simulator.md"), ("run", "warehouse.md")])
def test_every_option_is_described(command: str, document: str) -> None:
    group: Any = typer.main.get_command(app)
    described = {name.split()[0] for name in rows(document, f"options: {command}")}
    assert described == options_of(group.commands[command]) - {"--help"}


def test_every_feature_is_described_with_its_kind() -> None:
    described = {name: cells[0] for name, cells in rows("concepts.md", "features").items()}
    assert described == {
        name: "kept by the loop" if feature.changed_by == ChangedBy.LOOP else feature.kind
        for name, feature in FEATURES.items()
    }


def test_both_simulated_grains_have_every_feature() -> None:
    kept_by_loop = {name for name, feature in FEATURES.items() if feature.changed_by == ChangedBy.LOOP}
    assert set(TABLE_FEATURES) == set(READINGS) | kept_by_loop == set(FEATURES)
