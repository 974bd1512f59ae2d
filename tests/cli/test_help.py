import shlex
import subprocess
import sys
from collections.abc import Callable

import pytest
from click.testing import Result

from puncta.cli import main

HEAVY = {"anndata", "dask", "matplotlib", "numpy", "pandas", "polars", "pyarrow", "rich", "spatialdata", "zarr"}
VERBS = sorted(main.commands)

type Run = Callable[..., Result]


def loaded_by(*arguments: str) -> set[str]:
    code = (
        "import sys\nfrom puncta.cli import main\n"
        f"sys.argv = ['puncta', *{list(arguments)!r}]\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print('LOADED', *{name.split('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.rsplit("LOADED ", 1)[1].split())


def test_verbs_are_those_that_work_so_far() -> None:
    assert VERBS == ["convert", "demo", "index", "info", "plot", "query", "validate"]


@pytest.mark.parametrize("arguments", [("--help",), ("index", "--help"), ("query", "--help"), ("--version",)])
def test_help_loads_nothing_heavy(arguments: tuple[str, ...]) -> None:
    assert loaded_by(*arguments) & HEAVY == set()


@pytest.mark.parametrize("verb", VERBS)
def test_help_has_a_first_line_and_examples(run: Run, verb: str) -> None:
    result = run(verb, "--help")

    assert result.exit_code == 0
    assert str(main.commands[verb].help).partition("\n")[0] in result.stdout
    assert f"  puncta {verb}" in result.stdout


@pytest.mark.parametrize("verb", VERBS)
def test_first_line_is_shown_whole_among_the_verbs(run: Run, verb: str) -> None:
    assert str(main.commands[verb].help).partition("\n")[0] in run("--help").stdout


@pytest.mark.parametrize("verb", VERBS)
def test_examples_of_help_parse(verb: str) -> None:
    command = main.commands[verb]

    for example in command.examples:  # type: ignore[attr-defined]  # every command is a Verb
        arguments = shlex.split(example)
        assert arguments[:2] == ["puncta", verb]
        command.make_context(verb, arguments[2:])


def test_no_verb_shows_the_help(run: Run) -> None:
    result = run()

    assert (result.exit_code, result.stdout) == (0, run("--help").stdout)


def test_every_option_of_the_interface_is_there() -> None:
    options = {
        "index": "-o --in-place --name --x --y --z --feature-key --where --drop-controls --tile-size --origin --limit "
        "--max-levels --max-tiles --axes --no-feature-order --feature-levels --coordinate-system --coordinate-dtype "
        "--invalid --layout --codes-column --all-elements --seed --memory --tmp --workers --dask --overwrite "
        "--storage-option --json",
        "query": "--box --z --polygon --coordinate-system --feature --where --level --budget --thinning --columns -o "
        "--count --explain --json --storage-option --overwrite",
        "plot": "-o --box --feature --width --overwrite",
        "info": "--json --storage-option",
        "validate": "--json --storage-option",
        "demo": "--dir --points --no-browser",
    }
    for verb, names in options.items():
        known = {name for parameter in main.commands[verb].params for name in parameter.opts}
        assert set(names.split()) <= known | {"--help"}
