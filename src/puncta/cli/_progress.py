"""How far long work is: its stage, rate and time left, on a terminal; nothing at all elsewhere."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, Task

type Report = Callable[[str, int, int], None]
"""Called with the stage, what is done and what there is to do (0 where not known)."""

_REFRESHES = 8


@contextmanager
def showing_progress() -> Iterator[Report | None]:
    """Give what to call with the progress of some work, or None where stderr is no terminal; gone when it ends."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield None
        return
    bar = _bar()
    with bar:
        task = bar.add_task("starting", total=None)

        def report(stage: str, done: int, total: int) -> None:
            if bar.tasks[0].description != stage:
                bar.reset(task, description=stage, total=total or None, completed=0)
            bar.update(task, completed=done, total=total or None)

        yield report


def _bar() -> "Progress":
    # rich's bars take as long to import as everything else, and only a terminal has them
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    class Amount(ProgressColumn):
        """What is done, of how much, and how fast."""

        def render(self, task: "Task") -> Text:
            return Text(_amount(task.completed, task.total, task.finished_speed or task.speed), style="dim")

    return Progress(
        TextColumn("{task.description:<17}", markup=False),
        BarColumn(bar_width=24, style="dim", complete_style="cyan", finished_style="cyan", pulse_style="dim cyan"),
        Amount(),
        TimeRemainingColumn(compact=True),
        console=Console(stderr=True, markup=False, emoji=False, highlight=False),
        refresh_per_second=_REFRESHES,
        transient=True,
    )


def _amount(done: float, total: float | None, speed: float | None) -> str:
    if not done:
        return ""
    whole = f" of {_short(total)}" if total else ""
    rate = f", {_short(speed)}/s" if speed else ""
    return f"{_short(done)}{whole}{rate}"


def _short(number: float) -> str:
    for unit in ("", " k", " M"):
        if number < 999.5:  # noqa: PLR2004 - rounds to four digits
            return f"{number:.3g}{unit}"
        number /= 1000
    return f"{number:.3g} G"
