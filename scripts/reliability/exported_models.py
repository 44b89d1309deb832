"""Export a model and let ONNX Runtime and LIBSVM decide all rows of a test set.

    python -m scripts.reliability.exported_models runs/mb/model.safetensors mb.zarr

Needs onnx, onnxruntime and libsvm-official.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from bigsvm.export import export
from bigsvm.models.libsvm_model import KERNELS, integer_labels
from bigsvm.models.model import load_model
from bigsvm.stores.store import open_dataset


def as_libsvm(decision: np.ndarray) -> np.ndarray:
    """As LIBSVM gives them, (rows, pairs): the differences of the values of two classes."""
    if decision.ndim == 1:
        return decision[:, None]
    first, second = np.triu_indices(decision.shape[1], 1)
    return decision[:, first] - decision[:, second]


def tell(name: str, seconds: float, errors: list[np.ndarray], same: np.ndarray) -> None:
    off, off_precise = (np.abs(error).max() for error in errors)
    print(
        f"{name:<13}{seconds:6.1f} s  against ours {off:.1e}, against ours in float64 "
        f"{off_precise:.1e}, labels that differ: {np.count_nonzero(~same)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", metavar="MODEL", type=Path)
    parser.add_argument("store", metavar="STORE", help="its part `test` is decided")
    options = parser.parse_args()
    compare(options.model, options.store)


def compare(model_file: Path, store: str) -> None:
    import onnxruntime
    from libsvm import svmutil

    model = load_model(model_file)
    with open_dataset(store, "test", classes=model.classes) as data:
        scaled = data.read(0, data.n)
    raw = scaled.astype(np.float64)
    if model.scaling is not None:
        raw = raw * model.scaling.scale + model.scaling.offset
        scaled = model.scaling.apply(raw)
    ours = model.decision_function(raw)
    precise = model.decision_function(raw, precise=True)
    print(f"{model}: {len(raw):,} rows, decisions up to {np.abs(ours).max():.1e}, "
          f"the nearest to zero {np.abs(ours).min():.1e}")  # fmt: skip

    with tempfile.TemporaryDirectory() as folder:
        export(model_file, Path(folder, "m.onnx"))
        session = onnxruntime.InferenceSession(Path(folder, "m.onnx"))
        began = time.monotonic()
        label, decision = session.run(["label", "decision"], {"X": raw})
        seconds, same = time.monotonic() - began, label == model.labels_of(ours)
        tell("ONNX Runtime", seconds, [decision - ours, decision - precise], same)
        if model.kernel["name"] in KERNELS:
            export(model_file, Path(folder, "m.model"))
            began = time.monotonic()
            loaded = svmutil.svm_load_model(str(Path(folder, "m.model")))
            numbers, _, values = svmutil.svm_predict([], scaled.astype(np.float64), loaded, "-q")
            expected = np.asarray(integer_labels(model.classes))[model.places_of(ours)]
            errors = [np.array(values) - as_libsvm(these) for these in (ours, precise)]
            tell("LIBSVM", time.monotonic() - began, errors, np.array(numbers) == expected)


if __name__ == "__main__":
    main()
