"""What becomes of an error: one line on stderr, and an exit code."""

import contextlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from types import FrameType

import click

from puncta.errors import MetadataError, PunctaError, UnsupportedError

YES, NO, WRONG_USE = 0, 1, 2
"""Exit codes of the interface."""

# What a shell reports of a process that the signal ended.
_BY_SIGNAL = 128
INTERRUPTED = _BY_SIGNAL + signal.SIGINT
_PIPE_CLOSED = _BY_SIGNAL + signal.SIGPIPE


def exit_code_of(work: Callable[[], object]) -> int:
    """Do the work, say what went wrong if anything did, and return the exit code.

    Click's own exceptions pass through: they are about the command line, and click knows which.
    """
    try:
        code = _done(work)
        # what is still in the buffer may find the pipe closed, and that must not happen at exit
        sys.stdout.flush()
    except (click.ClickException, click.Abort):
        raise
    except BrokenPipeError:
        _close_stdout()
        return _PIPE_CLOSED
    except KeyboardInterrupt as interrupt:
        _say(_with_notes("stopped", interrupt), word="interrupted:")
        return INTERRUPTED
    except SystemExit as stop:
        if getattr(stop, "__notes__", ()):
            _say(_with_notes("stopped", stop), word="interrupted:")
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, a user gets one line and never a traceback
        _say_error(error)
        return WRONG_USE if isinstance(error, UnsupportedError) else NO
    return code


def _done(work: Callable[[], object]) -> int:
    """Do the work, and return the exit code that it asks for."""
    try:
        work()
    except click.exceptions.Exit as stop:
        return stop.exit_code
    return YES


def say_wrong_use(error: click.ClickException) -> int:
    """Say what is wrong with the command line, and return the exit code."""
    message = " ".join(error.format_message().split())
    context = error.ctx if isinstance(error, click.UsageError) else None
    hint = f" ({context.command_path} --help says how)" if context is not None else ""
    _say(message.removesuffix(".") + hint)
    return WRONG_USE


@contextlib.contextmanager
def stopping_on_signals() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into `SystemExit` inside the block, so that half-made files are removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # One that is ignored (nohup) or handled by an embedding program stays as it is.
    numbers = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) == signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, _exit)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def _exit(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the shape of a signal handler
    raise SystemExit(_BY_SIGNAL + number)


def _say_error(error: Exception) -> None:
    if os.environ.get("PUNCTA_DEBUG", "0") not in {"", "0"}:
        traceback.print_exception(error)
    _say(_words_for(error))


def _words_for(error: Exception) -> str:
    if isinstance(error, MetadataError):
        # one line a problem
        return str(error)
    text = " ".join(str(error).split())
    if isinstance(error, PunctaError):
        return _with_notes(text, error)
    if isinstance(error, MemoryError):
        return (
            "out of memory; close other programs, or ask for less (index: --memory 500MB; query: --budget, --columns)"
        )
    if isinstance(error, OSError) and error.strerror:
        return f"the system refused: {error.strerror}{f': {error.filename}' if error.filename else ''}"
    return f"this is a bug in puncta: {type(error).__name__}: {text}; please report it, with what PUNCTA_DEBUG=1 shows"


def _with_notes(text: str, error: BaseException) -> str:
    """Return a message with what an error was given to say of what is left."""
    return "; ".join([text, *getattr(error, "__notes__", ())])


def _say(message: str, *, word: str = "error:") -> None:
    color = False if os.environ.get("NO_COLOR") else None
    # the other end of a closed pipe may be that of stderr, too
    with contextlib.suppress(BrokenPipeError):
        click.echo(f"{click.style(word, fg='red', bold=True)} {message}", err=True, color=color)


def _close_stdout() -> None:
    """Lead stdout nowhere, so that the interpreter's last flush does not complain."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
