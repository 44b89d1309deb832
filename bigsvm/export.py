"""Convert a model for other programs: python -m bigsvm.export MODEL OUT."""

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from bigsvm import cli
from bigsvm.core.errors import UserError
from bigsvm.files.atomic import atomic_write

EXAMPLES = """examples:
  python -m bigsvm.export runs/mb/model.safetensors mb.onnx
  python -m bigsvm.export runs/mb/model.safetensors mb.model

ONNX: the input X is raw rows (rows, features) float64, which the graph scales; their columns are in
the order of the training data (feature_names in the metadata); the outputs are label (original
labels), decision and, of a calibrated model, probability (rows, classes). Where text or gaps
were encoded, each raw column is an input (rows, 1) instead. LIBSVM: c_svc, without probabilities,
on encoded features; since LIBSVM has no scaling, OUT.json describes it.
"""

SUFFIXES = (".onnx", ".model")


def export(model_file: Path, out: Path, *, overwrite: bool = False) -> Path | None:
    """Convert a model to the format given by the name of `out`; written atomically.

    Parameters
    ----------
    model_file : Path
        A model or snapshot.
    out : Path
        `*.onnx`, or `*.model` for LIBSVM's format.
    overwrite : bool
        Replace an existing output.

    Returns
    -------
    Path or None
        The second file that LIBSVM's format may need; see `bigsvm.models.libsvm_model`.
    """
    check_output(out, overwrite)
    from bigsvm.models.model import load_model

    model = load_model(model_file)
    if model.n_support == 0:
        raise UserError(f"{model_file}: has no support vectors; there is nothing to export")
    if out.suffix.lower() == ".model":
        from bigsvm.models.libsvm_model import write_libsvm

        return write_libsvm(model, out, overwrite)
    from bigsvm.models.onnx_graph import onnx_model

    content = onnx_model(model).SerializeToString(deterministic=True)
    with atomic_write(out) as temporary:
        temporary.write_bytes(content)
    return None


def check_output(out: Path, overwrite: bool) -> None:
    """Raise a UserError for an output that cannot, or must not, be written."""
    if out.suffix.lower() not in SUFFIXES:
        raise UserError(f"{out}: the name of the output must end in .onnx or .model (LIBSVM)")
    if not out.parent.is_dir():
        raise UserError(f"{out}: there is no folder {out.parent}; create it first")
    if out.is_dir():
        raise UserError(f"{out}: is a folder; choose another name")
    if out.exists() and not overwrite:
        raise UserError(f"{out}: exists already; --overwrite replaces it")


def parse_arguments(argv: Sequence[str] | None) -> Namespace:
    """Read the command line."""
    parser = cli.Arguments("bigsvm.export", "Write a model for ONNX Runtime or LIBSVM.", EXAMPLES)
    add = parser.add_argument
    add("model", metavar="MODEL", type=Path, help="a model or snapshot, *.safetensors")
    add("out", metavar="OUT", type=Path, help="*.onnx, or *.model for LIBSVM")
    add("--overwrite", action="store_true", help="replace an existing OUT")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `python -m bigsvm.export`."""
    arguments = parse_arguments(argv)
    beside = export(arguments.model, arguments.out, overwrite=arguments.overwrite)
    print(f"written to {arguments.out}")
    if beside is not None:
        print(f"scaling and label names, which LIBSVM's format cannot express, are in {beside}")
    return 0


if __name__ == "__main__":
    sys.exit(cli.run(main))
