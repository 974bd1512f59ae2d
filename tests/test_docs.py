"""The documentation holds: every code block of the README and of the pages runs, page by page."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from puncta.points._sampling import sample_numbers, thinning_numbers
from puncta.spec.points import validate_points_attrs

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FORMAT = ROOT / "docs" / "format" / "points.md"
NODE = shutil.which("node")

# Pages that use doors which are still being written; empty this set when they are there.
WAITING: frozenset[str] = frozenset()

# What these start with needs a network and changes the environment: such a line is read, not run.
INSTALLERS = ("pip", "uv", "uvx")
LANGUAGES = {"python", "console", "javascript", "json", "text", "bibtex"}

_FENCE = re.compile(
    r"^(?P<indent> *)(?P<fence>`{3,})(?P<language>[^\s`]*)[^\n]*\n(?P<code>.*?)^(?P=indent)(?P=fence) *$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block of a page."""

    page: Path
    language: str
    code: str
    line: int
    """Line of the page on which the code begins, from 1."""

    @property
    def commands(self) -> list[str]:
        """The command lines of a console block: those after `$ `, continued where a line ends in a backslash."""
        joined = self.code.replace("\\\n", " ")
        return [line.removeprefix("$ ").strip() for line in joined.splitlines() if line.startswith("$ ")]


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            page=page,
            language=match["language"],
            code=textwrap.dedent(match["code"]),
            line=text.count("\n", 0, match.start("code")) + 1,
        )
        for match in _FENCE.finditer(text)
    ]


def is_install(command: str) -> bool:
    return shlex.split(command)[0] in INSTALLERS


def run_page(page: Path) -> None:
    """Run the blocks of a page in order, in the working directory, the Python ones in one namespace."""
    namespace: dict[str, Any] = {"__name__": "__page__"}
    for block in blocks_of(page):
        if block.language == "python":
            # Blank lines before the code, so that a traceback names the line of the page.
            exec(compile("\n" * (block.line - 1) + block.code, str(page), "exec"), namespace)  # noqa: S102
        elif block.language == "console":
            for command in block.commands:
                run_command(command)
        elif block.language == "javascript" and NODE:
            subprocess.run([NODE, "-e", block.code], check=True)
        elif block.language == "json":
            json.loads(block.code, parse_constant=_refuse)


def run_command(command: str) -> None:
    if is_install(command):
        return
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-c", command],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PATH": path},
    )
    assert done.returncode == 0, f"$ {command}\nexit {done.returncode}\n{done.stdout}{done.stderr}"


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def _marked(page: Path) -> Any:  # noqa: ANN401  # pytest does not name the type
    marks = [pytest.mark.xfail(reason="waits for a door", strict=False)] if name_of(page) in WAITING else []
    return pytest.param(page, id=name_of(page), marks=marks)


@pytest.mark.parametrize("page", [_marked(page) for page in PAGES])
def test_every_block_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(page)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_says_what_it_is(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert len(re.findall(r"^ *```", text, re.MULTILINE)) == 2 * len(blocks_of(page))
    assert {block.language for block in blocks_of(page)} <= LANGUAGES


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_is_an_installer_s_or_ours(page: Path) -> None:
    commands = [command for block in blocks_of(page) if block.language == "console" for command in block.commands]
    for part in (part.strip() for command in commands for part in re.split(r"&&|\||;", command)):
        assert shlex.split(part)[0] in {*INSTALLERS, "puncta", "python", "cd", "ls"}, part


def test_the_readme_s_test_command_is_what_ci_runs() -> None:
    assert '\nstep "tests" uv run pytest ' in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_the_metadata_in_the_format_is_valid() -> None:
    (block,) = [block for block in blocks_of(FORMAT) if block.language == "json"]
    assert validate_points_attrs(json.loads(block.code), strict=True) == []


def _format_namespace() -> dict[str, Any]:
    namespace: dict[str, Any] = {}
    for block in blocks_of(FORMAT):
        if block.language == "python":
            exec(block.code, namespace)  # noqa: S102
    return namespace


def test_the_sampling_hash_of_the_format_is_ours() -> None:
    number = _format_namespace()["sample_number"]
    rows = np.asarray([0, 1, 2, 10**6, 2**63, 2**64 - 1], dtype=np.uint64)
    for seed in (0, 1, 12345, 2**64 - 1):
        assert sample_numbers(rows, seed).tolist() == [number(int(row), seed) for row in rows]


def _points_to_thin() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    points = (rng.normal(size=(500, 3)) * 10.0 ** rng.integers(-3, 6, size=(500, 1))).astype(np.float32)
    points[:2] = [[-0.0, 0.0, 1e-45], [0.0, -0.0, -1e-45]]
    return points, rng.integers(-1, 70_000, size=500)


def test_the_thinning_hash_of_the_format_is_ours() -> None:
    number = _format_namespace()["thinning_number"]
    points, codes = _points_to_thin()
    expected = thinning_numbers(list(points.T), codes).tolist()
    assert [number(code, point) for code, point in zip(codes.tolist(), points.tolist(), strict=True)] == expected


@pytest.mark.skipif(NODE is None, reason="node is not installed")
def test_javascript_thins_the_same_points() -> None:
    points, codes = _points_to_thin()
    (block,) = [block for block in blocks_of(FORMAT) if block.language == "javascript"]
    asked = json.dumps([codes.tolist(), points.tolist()])
    answer = "codes.map((code, i) => thinningNumber(code, points[i]))"
    script = f"{block.code}\nconst [codes, points] = {asked};\nconsole.log(JSON.stringify({answer}));"
    done = subprocess.run([str(NODE), "-"], input=script, check=True, capture_output=True, text=True)
    assert json.loads(done.stdout) == thinning_numbers(list(points.T), codes).tolist()
