"""The repository keeps its promises to a newcomer: one command per need, no private paths, no dead links."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from scripts.lowest_versions import lowest_versions

ROOT = Path(__file__).parents[1]

TARGETS = ["help", "setup", "demo", "test", "test-again", "test-lowest", "check", "format", "bench-smoke", "clean"]

#: Folders of one person's machine. Written so that this line does not match itself.
MACHINE_PATH = re.compile(r"(?<![\w.~-])/(?:work|root|(?:home|Users)/\w+)/")

FENCED_BLOCK = re.compile(r"^(`{3,}|~{3,}).*?^\1", re.MULTILINE | re.DOTALL)
INLINE_CODE = re.compile(r"`[^`\n]*`")
LINK_TARGET = re.compile(r"""\]\(<?([^)\s>]+)|^\[[^\]]+\]:\s+(\S+)|(?:src|href)="([^"]+)\"""", re.MULTILINE)
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|#")


def project_files() -> list[Path]:
    """Every file of the checkout that is, or is about to be, under version control."""
    git = shutil.which("git")
    if git is None:
        pytest.skip("git is not installed")
    listing = subprocess.run(
        [git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode != 0:
        pytest.skip("not in a git checkout")
    return [path for name in listing.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def machine_paths(text: str) -> list[str]:
    return [
        f"line {number}: {line.strip()}"
        for number, line in enumerate(text.splitlines(), 1)
        if MACHINE_PATH.search(line)
    ]


def broken_links(text: str, folder: Path) -> list[str]:
    """The targets of relative links in Markdown ``text``, a file of ``folder``, that do not exist."""
    prose = INLINE_CODE.sub("", FENCED_BLOCK.sub("", text))
    targets = [next(filter(None, groups)) for groups in LINK_TARGET.findall(prose)]
    return [t for t in targets if not ELSEWHERE.match(t) and not (folder / t.partition("#")[0]).exists()]


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_bare_make_lists_every_target_with_its_help() -> None:
    shown = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert re.findall(r"^  (\S+) +\S", shown, re.MULTILINE) == TARGETS


def test_every_phony_target_has_a_rule_with_a_help_line() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    (phony,) = re.findall(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
    with_help = re.findall(r"^([a-z-]+):.* ## \w", makefile, re.MULTILINE)
    assert [name for name in phony.split() if name != "FORCE"] == with_help == TARGETS


def test_no_file_names_a_folder_of_one_machine() -> None:
    offenders = {
        str(path.relative_to(ROOT)): found
        for path in project_files()
        if (found := machine_paths(path.read_text("utf-8", errors="ignore")))
    }
    assert offenders == {}


@pytest.mark.parametrize("folder", ["work", "root", "home/someone", "Users/someone"])
def test_machine_paths_are_found(folder: str) -> None:
    assert machine_paths(f"fine\ncache = '/{folder}/cache'") == [f"line 2: cache = '/{folder}/cache'"]


@pytest.mark.parametrize("text", ["https://example.org/work/", "src/root/x", "at work/rest", "~/work/x"])
def test_other_paths_are_left_alone(text: str) -> None:
    assert machine_paths(text) == []


def test_every_relative_link_in_the_documents_leads_to_a_file() -> None:
    offenders = {
        str(path.relative_to(ROOT)): broken
        for path in project_files()
        if path.suffix == ".md" and (broken := broken_links(path.read_text("utf-8"), path.parent))
    }
    assert offenders == {}


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        pytest.param("[a](here.md) [b](here.md#part)", [], id="existing file"),
        pytest.param("[a](gone.md)", ["gone.md"], id="missing file"),
        pytest.param("[a](gone.md#part)", ["gone.md#part"], id="missing file with a part"),
        pytest.param('![plot](gone.png "title")', ["gone.png"], id="missing picture"),
        pytest.param("[![badge](here.md)](gone.md)", ["gone.md"], id="link around a picture"),
        pytest.param("see [a][1]\n\n[1]: gone.md", ["gone.md"], id="reference"),
        pytest.param('<img src="gone.svg">', ["gone.svg"], id="HTML"),
        pytest.param("[a](https://example.org/x) [b](#part) [c](mailto:a@b.c)", [], id="not a file"),
        pytest.param("```\n[a](gone.md)\n```\nand `[a](gone.md)`", [], id="inside code"),
    ],
)
def test_broken_links_are_found(tmp_path: Path, text: str, broken: list[str]) -> None:
    (tmp_path / "here.md").touch()
    assert broken_links(text, tmp_path) == broken


def test_every_package_that_is_needed_has_one_lower_bound() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert {"deltalake", "numpy", "pyarrow", "polars", "pytest"} <= lowest_versions(project).keys()


def made_of(*needed: str, **extras: list[str]) -> dict[str, object]:
    return {"name": "headgate", "dependencies": list(needed), "optional-dependencies": extras}


@pytest.mark.parametrize(
    ("needed", "lowest"),
    [
        pytest.param("numpy>=1.26,<3", {"numpy": "1.26"}, id="a range"),
        pytest.param("pandas <3, >= 2.2", {"pandas": "2.2"}, id="the other way round"),
        pytest.param("pyspark==4.3.*", {"pyspark": "4.3"}, id="a series"),
        pytest.param("pyspark[connect]==4.3.*; python_version > '3.10'", {"pyspark": "4.3"}, id="extras and a marker"),
        pytest.param("headgate[frames]", {}, id="an extra of its own"),
    ],
)
def test_the_lowest_version_is_read_from_a_requirement(needed: str, lowest: dict[str, str]) -> None:
    assert lowest_versions(made_of(needed)) == lowest
    assert lowest_versions(made_of(extra=[needed])) == lowest


@pytest.mark.parametrize(
    ("needed", "text"),
    [
        pytest.param(["numpy<3"], "'numpy<3' in pyproject.toml has no lower bound", id="no lower bound"),
        pytest.param(["numpy>=1", "numpy>=2"], "two lower bounds of numpy: 1 and 2", id="two of them"),
    ],
)
def test_a_package_without_one_lower_bound_is_named(needed: list[str], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        lowest_versions(made_of(*needed))
