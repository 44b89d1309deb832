"""The `bigsvm` command, and what all commands share: argument errors, exit codes, signals."""

import atexit
import errno
import importlib
import os
import signal
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import Any, NoReturn

from bigsvm.core.errors import UserError
from bigsvm.core.messages import did_you_mean
from bigsvm.core.version import __version__ as VERSION
from bigsvm.terminal.closed_output import tolerate_closed_output
from bigsvm.terminal.logs import LOGGER, as_called, called_as_program, configure

WRONG_PATH = (errno.EACCES, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTDIR)

COMMANDS = {
    "prepare": "stream raw files into a chunked store",
    "train": "train a model, or resume an interrupted run",
    "tune": "choose C and sigma by cross-validation",
    "evaluate": "score every snapshot of a run on a test set",
    "calibrate": "fit probabilities to a model's decision values",
    "predict": "apply a model to a store or a file",
    "export": "convert a model for ONNX Runtime or LIBSVM",
    "inspect": "show what a model, a run or a store contains",
    "report": "make a page about runs, or follow them live in a browser",
    "completion": "print a shell's completion of commands and options",
    "init": "write a config to start from, for a store or a file",
}


class _Collected(Exception):
    """Raised by `parse_args` while parsers are collected."""


class Arguments(ArgumentParser):
    """An argument parser that reports a mistake in one line, as all other errors are."""

    _collected: "list[Arguments] | None" = None

    def __init__(self, module: str, description: str, epilog: str) -> None:
        super().__init__(
            as_called(f"python -m {module}"),
            description=description,
            epilog=epilog,
            formatter_class=RawDescriptionHelpFormatter,
        )
        messages = self.add_argument_group("messages")
        add = messages.add_argument
        add("-q", "--quiet", action="store_true", help="show warnings and errors only")
        add("-v", "--verbose", action="store_true", help="show details, too")
        add("--log-file", type=Path, metavar="FILE", help="append all messages to it, with times")

    @classmethod
    @contextmanager
    def described(cls) -> Iterator[list["Arguments"]]:
        """Collect parsers instead of parsing; the first call of `parse_args` ends the block."""
        cls._collected = []
        try:
            with suppress(_Collected):
                yield cls._collected
        finally:
            cls._collected = None

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse; an unknown option is an error that names the nearest known one."""
        if self._collected is not None:
            self._collected.append(self)
            raise _Collected
        found, unknown = self.parse_known_args(args, namespace)
        if unknown:
            # The dashes, which all options share, make the short ones look alike.
            word = unknown[0].partition("=")[0]
            near = did_you_mean(word, self._option_string_actions, cutoff=0.7)
            self.error(
                f"unrecognized arguments: {' '.join(unknown)}" + (f"; {near}" if near else "")
            )
        configure(found.quiet, found.verbose, found.log_file)
        return found

    def format_help(self) -> str:
        """The help, with commands as they are called."""
        for action in self._actions:
            action.help = as_called(action.help or "")
        return as_called(super().format_help())

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage and exiting, as argparse would."""
        raise UserError(f"{message}; see {self.prog} --help")


def check_output(option: str, path: Path, suffixes: Sequence[str], what: str) -> None:
    """Raise a UserError for an output file whose name or folder is wrong; `what` describes it."""
    if path.suffix.lower() not in suffixes:
        raise UserError(f"{option} {path}: {what}; name it *{suffixes[0]}")
    if not path.parent.is_dir():
        raise UserError(f"{option} {path}: there is no folder {path.parent}; create it first")


def run(command: Callable[[Sequence[str] | None], int], argv: Sequence[str] | None = None) -> int:
    """Run `command`; a UserError becomes one line on stderr and exit code 2."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # file names may not be valid text
    limit_spinning()
    with tolerate_closed_output():
        return _run_command(command, argv)


def limit_spinning() -> None:
    """Keep idle threads from spinning; the user's own environment variables take precedence.

    By default OpenMP threads that wait for work spin for milliseconds, and those of numpy's BLAS,
    which no command needs, for a tenth of a second. On shared cores that delays the very work they
    wait for: beside two busy processes a block training on two cores took 1.5 times as long. Must
    run before these libraries are loaded.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "3000")  # some 0.1 ms
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _run_command(command: Callable[[Sequence[str] | None], int], argv: Sequence[str] | None) -> int:
    try:
        return command(argv)
    except UserError as mistake:
        LOGGER.error("%s", mistake)
        return 2
    except BrokenPipeError:
        # The reader of our output left (`| head`); Python must not report it on exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + 13
    except OSError as failure:
        LOGGER.error("%s: %s", failure.filename or "input or output", failure.strerror)
        # Otherwise the machine is at fault, not the user: a full disk, a lost network share.
        return 2 if failure.errno in WRONG_PATH else 1
    except MemoryError as failure:
        what = " ".join(str(failure).split()) or "for the next step"
        LOGGER.error("not enough memory (%s)", what)
        return 1
    except KeyboardInterrupt:
        return 128 + 2
    finally:
        if argv is None:
            _exit_on_ctrl_c()
        atexit.unregister(_join_zarr_thread)
        atexit.register(_join_zarr_thread)  # registered after zarr's handler, so runs before it


def _exit_on_ctrl_c() -> None:
    """The process is about to exit: from now on Ctrl-C ends it without a traceback."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _join_zarr_thread() -> None:
    """Wait for zarr's I/O thread to finish.

    zarr itself waits 0.2 s and then closes the event loop that the thread may still use, which on a
    busy machine ends a command with a traceback.
    """
    sync = sys.modules.get("zarr.core.sync")
    if sync is not None and sync.loop[0] is not None and sync.iothread[0] is not None:
        sync.loop[0].call_soon_threadsafe(sync.loop[0].stop)
        sync.iothread[0].join(timeout=10)


def main(argv: Sequence[str] | None = None) -> int:
    """Dispatch `bigsvm COMMAND ...` to `bigsvm.COMMAND`."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["help"]:  # bigsvm help train, as bigsvm train --help
        arguments = [*arguments[1:2], "--help"]
    if arguments in (["--version"], ["-V"]):
        print(f"bigsvm {VERSION}")
        return 0
    if arguments and arguments[0] in COMMANDS:
        command = importlib.import_module(f"bigsvm.{arguments[0]}")
        try:
            with called_as_program():
                return run(command.main, arguments[1:])
        finally:
            _exit_on_ctrl_c()
    if arguments not in ([], ["-h"], ["--help"]):
        near = did_you_mean(arguments[0], COMMANDS)
        hint = near or f"the commands are: {', '.join(COMMANDS)}"
        print(f"error: unknown command {arguments[0]!r}; {hint}", file=sys.stderr)
        return 2
    print("usage: bigsvm COMMAND [options]      (bigsvm help COMMAND for details; --version)\n")
    for name, purpose in COMMANDS.items():
        print(f"  {name:<11}{purpose}")
    return 0
