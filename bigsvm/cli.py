"""The `bigsvm` command, and how every command ends: quietly, or with one clear line."""

import atexit
import errno
import importlib
import os
import signal
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from io import TextIOWrapper
from typing import NoReturn

from bigsvm.core.errors import UserError
from bigsvm.terminal.closed_output import tolerate_closed_output

WRONG_PATH = (errno.EACCES, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTDIR)

COMMANDS = {
    "prepare": "stream raw files into a chunked store",
    "train": "train a model, or go on where the last run stopped",
    "tune": "choose C and sigma by cross-validation",
    "evaluate": "every snapshot of a run against a test set",
    "predict": "stream a store or a file through a model",
    "export": "a model for ONNX Runtime or LIBSVM",
    "inspect": "what is inside a model, a run or a store",
}


class Arguments(ArgumentParser):
    """A command line, of which a mistake is told in one line too."""

    def error(self, message: str) -> NoReturn:
        """Argparse would print the usage first, and leave."""
        raise UserError(f"{message}; {self.prog} --help tells all options")


def run(command: Callable[[Sequence[str] | None], int], argv: Sequence[str] | None = None) -> int:
    """Call `command`; turn a user's mistake into one line on stderr and exit code 2."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a file's name may be no text
    have_threads_wait_quietly()
    with tolerate_closed_output():
        return _ended_in_order(command, argv)


def have_threads_wait_quietly() -> None:
    """Settings for libraries that are not loaded yet; whoever has set them knows better.

    Left to themselves, threads that wait for work spin: those of OpenMP for milliseconds, those of
    numpy's BLAS, which no command needs, for a tenth of a second. Where somebody else is on the
    same cores, that is the time in which the work they wait for would have been done: beside two
    busy processes a block training took half as long again on two cores.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "3000")  # some 0.1 ms
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _ended_in_order(
    command: Callable[[Sequence[str] | None], int], argv: Sequence[str] | None
) -> int:
    try:
        return command(argv)
    except UserError as mistake:
        print(f"error: {mistake}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader of our output left (`| head`); Python must not complain about it on exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + 13
    except OSError as failure:
        print(
            f"error: {failure.filename or 'input or output'}: {failure.strerror}", file=sys.stderr
        )
        # Else it is the machine's fault, not the user's: a full disk, a share that went away.
        return 2 if failure.errno in WRONG_PATH else 1
    except MemoryError as failure:
        what = " ".join(str(failure).split()) or "for the next step"
        print(f"error: not enough memory ({what})", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + 2
    finally:
        if argv is None:
            _leave_at_ctrl_c()
        atexit.unregister(_await_zarr)
        atexit.register(_await_zarr)  # after zarr's own, and so ahead of it


def _leave_at_ctrl_c() -> None:
    """The command is done and the process about to end: Ctrl-C ends it, without a traceback."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _await_zarr() -> None:
    """Let the thread of zarr come to its end.

    zarr itself waits for 0.2 s, and then closes what that thread still uses: on a busy machine
    the last word of a command would be a traceback.
    """
    sync = sys.modules.get("zarr.core.sync")
    if sync is not None and sync.loop[0] is not None and sync.iothread[0] is not None:
        sync.loop[0].call_soon_threadsafe(sync.loop[0].stop)
        sync.iothread[0].join(timeout=10)


def main(argv: Sequence[str] | None = None) -> int:
    """Dispatch `bigsvm COMMAND ...` to `bigsvm.COMMAND`."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments and arguments[0] in COMMANDS:
        command = importlib.import_module(f"bigsvm.{arguments[0]}")
        try:
            return run(command.main, arguments[1:])
        finally:
            _leave_at_ctrl_c()
    if arguments not in ([], ["-h"], ["--help"]):
        known = ", ".join(COMMANDS)
        print(f"error: unknown command {arguments[0]!r}; known are: {known}", file=sys.stderr)
        return 2
    print("usage: bigsvm COMMAND [options]      (bigsvm COMMAND --help for each)\n")
    for name, purpose in COMMANDS.items():
        print(f"  {name:<10}{purpose}")
    return 0
