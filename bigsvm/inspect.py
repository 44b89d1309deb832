"""Show what a model, a run or a store contains: python -m bigsvm.inspect PATH."""

import json
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bigsvm import cli
from bigsvm.core.errors import UserError
from bigsvm.core.messages import format_bytes, shell_command

Facts = dict[str, Any]

EXAMPLES = """examples:
  python -m bigsvm.inspect runs/mb/model.safetensors
  python -m bigsvm.inspect runs/mb
  python -m bigsvm.inspect runs/heart-tune
  python -m bigsvm.inspect mb.zarr --json

Only reads; never executes anything from a file.
"""

_MAX_ITEMS = 8  # of a list


def inspect(path: Path) -> Facts:
    """The facts about a model or snapshot, the directory of a run or a tuning, or a store.

    Parameters
    ----------
    path : Path

    Returns
    -------
    dict
        Ready for JSON.
    """
    if path.is_dir() and not _is_zarr(path):
        from bigsvm.inspection.run import is_run, is_tuning, run_facts, tuning_facts

        if is_run(path):
            return run_facts(path)
        if is_tuning(path):
            return tuning_facts(path)
        raise UserError(f"{path}: is neither a directory of a run or a tuning nor a Zarr store")
    if path.is_file():
        import h5py

        if not h5py.is_hdf5(path):
            from bigsvm.inspection.model import model_facts

            try:
                return model_facts(path)
            except UserError as mistake:
                if path.suffix == ".safetensors":
                    raise
                raise UserError(
                    f"{path}: is not a file of bigsvm, neither a model nor a store; "
                    f"{shell_command('prepare', path)} STORE makes a store of raw rows"
                ) from mistake
    elif not path.exists() and not any(p.is_file() or _is_zarr(p) for p in path.parents):
        raise UserError(f"{path}: no such model, run directory or store")
    from bigsvm.inspection.store import store_facts

    return store_facts(path)


def _is_zarr(path: Path) -> bool:
    return any((path / name).exists() for name in ("zarr.json", ".zgroup"))


def lines(facts: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """The facts as text: a line each, nested ones indented."""
    for key, value in facts.items():
        if isinstance(value, Mapping) and any(isinstance(v, Mapping) for v in value.values()):
            yield f"{indent}{_name(key)}"
            yield from lines(value, indent + "  ")
        else:
            yield f"{indent}{_name(key):<{19 - len(indent)}} {_shown(value, key)}"


def _name(key: str) -> str:
    return _shown("size" if key == "bytes" else key.removesuffix("_bytes").replace("_", " "))


def _shown(value: Any, key: str = "") -> str:
    """A value as text; `key` distinguishes sizes in bytes from other integers."""
    if isinstance(value, Mapping):
        known = {_name(str(k)): _shown(v, str(k)) for k, v in value.items() if v is not None}
        return ", ".join(f"{key} {shown}".strip() for key, shown in known.items()) or "-"
    if isinstance(value, list):
        some = ", ".join(_shown(v) for v in value[:_MAX_ITEMS])
        return f"[{some}, ...] ({len(value):,})" if len(value) > _MAX_ITEMS else f"[{some}]"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        size = key.endswith("bytes") or key == "memory_limit" or key == "rss"
        return format_bytes(value) if size else f"{value:,}"
    if isinstance(value, float):
        return f"{value:.6g}"
    # Names come from files, and must not send control characters to the terminal.
    return "-" if value is None else "".join(c if c.isprintable() else "?" for c in str(value))


def parse_arguments(argv: Sequence[str] | None) -> Namespace:
    """Read the command line."""
    parser = cli.Arguments(
        "bigsvm.inspect", "Show what a model, a run or a store contains.", EXAMPLES
    )
    parser.add_argument(
        "path",
        metavar="MODEL|DIR|STORE",
        type=Path,
        help="a model; the directory of a run or a tuning; a store, or a group in it: s.zarr/test",
    )
    parser.add_argument("--json", action="store_true", help="everything, as JSON")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `python -m bigsvm.inspect`."""
    arguments = parse_arguments(argv)
    facts = inspect(arguments.path)
    if arguments.json:
        print(json.dumps(facts, indent=2))
    else:
        print(*lines(facts), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(cli.run(main))
