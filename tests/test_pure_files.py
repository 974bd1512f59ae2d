"""Pure files open nothing: what the import contracts of pyproject.toml cannot say."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
(PURE,) = [contract["source_modules"] for contract in CONTRACTS if contract["name"] == "Pure files open nothing"]

# The parts of Arrow that reach a disk or a network; the library as a whole is what pure files compute with.
SHELLS = {"csv", "dataset", "feather", "flight", "fs", "ipc", "json", "orc", "parquet"}
OPENERS = {"open", "memory_map", "scan_parquet", "read_parquet", "read_csv", "fromfile", "memmap"}


def imported(tree: ast.Module) -> set[str]:
    """Return every module, and every name of a module, that the file imports."""
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    froms = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return names | {f"{node.module}.{alias.name}" for node in froms for alias in node.names}


def called(tree: ast.Module) -> set[str]:
    """Return the last name of everything that the file calls."""
    functions = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return {node.id for node in functions if isinstance(node, ast.Name)} | {
        node.attr for node in functions if isinstance(node, ast.Attribute)
    }


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("module", PURE)
def test_a_pure_file_opens_nothing(module: str) -> None:
    tree = parsed(ROOT / "src" / Path(*module.split(".")).with_suffix(".py"))
    assert not {name for name in imported(tree) if name.split(".")[0] == "pyarrow" and SHELLS & set(name.split("."))}
    assert not OPENERS & called(tree)


def test_a_file_that_says_it_is_pure_is_held_to_it() -> None:
    files = {path: ast.get_docstring(parsed(path)) or "" for path in (ROOT / "src").rglob("*.py")}
    claimed = [path.relative_to(ROOT / "src") for path, text in files.items() if re.search(r"\bPure\b", text)]
    assert {".".join(path.with_suffix("").parts) for path in claimed} - set(PURE) == set()
