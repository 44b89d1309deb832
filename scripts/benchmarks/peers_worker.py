"""One piece of work of peers.py, in a process of its own; not to be called by hand.

    python -m scripts.benchmarks.peers_worker WORK.json ANSWER.json

`work` is data (rows out of the prepared store), tune (a grid, on a validation part), fit (a peer),
fit_bigsvm, or score (a bigsvm model). The process that starts this one stays small on purpose:
Linux hands the largest size of a process down to the ones it starts, and it would be counted as
theirs.
"""

import argparse
import importlib
import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

NYSTROEM_COMPONENTS = 1000
BIGSVM = ("exact", "block")
PREDICTIONS = 3  # the same for all: some take milliseconds, and one alone says little


def peak_bytes() -> int:
    """The largest size of this process so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def write_data(work: dict[str, Any]) -> dict[str, Any]:
    """Rows of a named source in one fixed random order, as npy, so that n rows are the first n.

    Scaling is fitted by `prepare`, on the training part only.
    """
    from bigsvm.config import DataConfig
    from bigsvm.preparation.data_sets import dataset_spec, resolve_data
    from bigsvm.stores.store import open_dataset

    folder = Path(work["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    data = resolve_data(DataConfig(source=work["data"], prepare=work["prepare"]))
    assert data.train is not None and data.test is not None
    sizes = {}
    for part, spec in (("train", data.train), ("test", data.test)):
        with open_dataset(dataset_spec(spec), part) as dataset:
            order = np.random.default_rng(0).permutation(dataset.n)
            x, y = dataset.read(0, dataset.n)[order], dataset.labels()[order]
        np.save(folder / f"{part}_x.npy", x)
        np.save(folder / f"{part}_y.npy", y)
        sizes[part] = len(y)
    return sizes


def rows_of(folder: Path, part: str, start: int, stop: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Rows start to stop of a part, float32, and their signs."""
    x = np.load(folder / f"{part}_x.npy", mmap_mode="r")[start:stop]
    y = np.load(folder / f"{part}_y.npy", mmap_mode="r")[start:stop]
    return np.array(x), np.array(y, dtype=np.int64)


def write_store(work: dict[str, Any]) -> dict[str, Any]:
    """The first rows of a part as an HDF5 file, a form in which bigsvm takes arrays."""
    import h5py

    x, y = rows_of(Path(work["folder"]), work["part"], 0, work["rows"])
    with h5py.File(work["store"], "w") as file:
        file["X"], file["y"] = x, y.astype(np.int8)
    return {"rows": len(y)}


def peer(work: dict[str, Any], C: float, sigma: float, rows: int) -> Any:
    """The estimator of a candidate that is not bigsvm."""
    gamma = 1 / (2 * sigma**2)
    name = work["candidate"]
    if name == "nystroem":
        from sklearn.kernel_approximation import Nystroem
        from sklearn.pipeline import make_pipeline
        from sklearn.svm import LinearSVC

        components = min(NYSTROEM_COMPONENTS, rows)
        features = Nystroem(kernel="rbf", gamma=gamma, n_components=components, random_state=0)
        return make_pipeline(features, LinearSVC(C=C, random_state=0))
    if name == "sklearnex":
        from daal4py import daalinit
        from sklearnex.svm import SVC

        daalinit(work["threads"])
    else:
        from sklearn.svm import SVC
    return SVC(C=C, kernel="rbf", gamma=gamma, cache_size=work["cache_mb"])


def support_of(model: Any) -> int:
    """Support vectors, or what takes their place: rows that a new row is compared with."""
    if hasattr(model, "steps"):
        return len(model[0].components_)
    return int(np.sum(model.n_support_))


def train_bigsvm(work: dict[str, Any], C: float, sigma: float, run: Path) -> float:
    """Seconds of bigsvm's own command, called within this process.

    Reading, checkpoints and saving are in them; importing and loading compiled code is not, as for
    the peers.
    """
    from bigsvm import cli, train
    from bigsvm.kernels import Kernel, warm_up

    cli.limit_spinning()
    for module in ("config.file", "models.scoring", "training.build", "training.summary"):
        importlib.import_module(f"bigsvm.{module}")
    warm_up(Kernel("rbf"))
    changed = [f"--set=model.C={C}", f"--set=model.kernel.sigma={sigma}"]
    begin = time.perf_counter()
    if train.main([work["config"], *changed, "--run-dir", str(run)]):
        raise RuntimeError("the training did not come to its end")
    return time.perf_counter() - begin


def fit_bigsvm(work: dict[str, Any]) -> dict[str, Any]:
    """Fit bigsvm; its run directory stays."""
    seconds = train_bigsvm(work, work["C"], work["sigma"], Path(work["run"]))
    return {"fit_seconds": seconds, "peak_bytes": peak_bytes()}


def tuned_bigsvm(work: dict[str, Any], C: float, sigma: float) -> Any:
    """A bigsvm model; the time does not matter."""
    from bigsvm.models.model import load_model

    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        train_bigsvm(work, C, sigma, run)
        return load_model(run / "model.safetensors")


def tune(work: dict[str, Any]) -> dict[str, Any]:
    """Accuracy of each (C, sigma) on rows that come after the ones fitted."""
    folder, rows = Path(work["folder"]), work["rows"]
    x, y = rows_of(folder, "train", 0, rows)
    x_valid, y_valid = rows_of(folder, "train", rows, 2 * rows)
    grid = []
    for C in work["Cs"]:
        for sigma in work["sigmas"]:
            if work["candidate"] in BIGSVM:
                model = tuned_bigsvm(work, C, sigma)
                signs = np.where(model.decision_function(x_valid, scaled=True) >= 0, 1, -1)
            else:
                signs = peer(work, C, sigma, rows).fit(x, y).predict(x_valid)
            grid.append({"C": C, "sigma": sigma, "accuracy": float(np.mean(signs == y_valid))})
    return {"grid": grid}


def predicted(predict: Callable[[np.ndarray], np.ndarray], folder: Path) -> dict[str, Any]:
    """Best time and accuracy over the test set; a few rows go first, to load what it takes."""
    x, y = rows_of(folder, "test", 0, None)
    predict(x[:32])
    seconds = []
    for _ in range(PREDICTIONS):
        begin = time.perf_counter()
        labels = predict(x)
        seconds.append(time.perf_counter() - begin)
    accuracy = float(np.mean(labels == y))
    return {"predict_seconds": min(seconds), "accuracy": accuracy, "test_rows": len(y)}


def fit(work: dict[str, Any]) -> dict[str, Any]:
    """Fit and score a peer; loading, importing and predicting are not in the fit time."""
    folder, rows = Path(work["folder"]), work["rows"]
    x, y = rows_of(folder, "train", 0, rows)
    model = peer(work, work["C"], work["sigma"], rows)
    begin = time.perf_counter()
    model.fit(x, y)
    answer = {"fit_seconds": time.perf_counter() - begin, "peak_bytes": peak_bytes()}
    if work["candidate"] == "sklearnex" and not hasattr(model, "_onedal_estimator"):
        raise RuntimeError("scikit-learn-intelex handed the work back to scikit-learn")
    return answer | {"n_support": support_of(model)} | predicted(model.predict, folder)


def score(work: dict[str, Any]) -> dict[str, Any]:
    """Score a bigsvm model."""
    from bigsvm.models.model import load_model

    model = load_model(work["model"])

    def predict(x: np.ndarray) -> np.ndarray:
        return model.predict(x, scaled=True)

    return {"n_support": model.n_support} | predicted(predict, Path(work["folder"]))


WORKS = {
    "data": write_data,
    "store": write_store,
    "tune": tune,
    "fit": fit,
    "fit_bigsvm": fit_bigsvm,
    "score": score,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", metavar="WORK.json", type=Path)
    parser.add_argument("answer", metavar="ANSWER.json", type=Path)
    options = parser.parse_args()
    work = json.loads(options.work.read_text())
    options.answer.write_text(json.dumps(WORKS[work["work"]](work)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
