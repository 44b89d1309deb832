"""The `bigsvm` command, and how every command ends: quietly, or with one clear line."""

import importlib
import os
import sys
from collections.abc import Callable, Sequence

from bigsvm.errors import UserError

COMMANDS = {
    "prepare": "stream raw files into a chunked store",
    "train": "train a model, or go on where the last run stopped",
    "evaluate": "every snapshot of a run against a test set",
    "predict": "stream a store or a file through a model",
    "export": "a model for ONNX Runtime or LIBSVM",
    "inspect": "what is inside a model, a run or a store",
}


def run(command: Callable[[Sequence[str] | None], int], argv: Sequence[str] | None = None) -> int:
    """Call `command`; turn a user's mistake into one line on stderr and exit code 2."""
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
        # The machine's fault, not the user's: a full disk, a share that went away.
        print(
            f"error: {failure.filename or 'input or output'}: {failure.strerror}", file=sys.stderr
        )
        return 1
    except KeyboardInterrupt:
        return 128 + 2


def main(argv: Sequence[str] | None = None) -> int:
    """Dispatch `bigsvm COMMAND ...` to `bigsvm.COMMAND`."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments and arguments[0] in COMMANDS:
        command = importlib.import_module(f"bigsvm.{arguments[0]}")
        return run(command.main, arguments[1:])
    asked_for_help = arguments in ([], ["-h"], ["--help"])
    out = sys.stdout if asked_for_help else sys.stderr
    if not asked_for_help:
        print(f"error: unknown command {arguments[0]!r}", file=out)
    print("usage: bigsvm COMMAND [options]      (bigsvm COMMAND --help for each)\n", file=out)
    for name, purpose in COMMANDS.items():
        print(f"  {name:<10}{purpose}", file=out)
    return 0 if asked_for_help else 2
