"""Pattern weights named by the config: margins, and factors of C."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bigsvm.config import ModelConfig
from bigsvm.core.errors import UserError
from bigsvm.core.labels import Classes, Label, describe_labels, same_label
from bigsvm.core.weights import WEIGHT_RANGE, valid_weights, weights_digest
from bigsvm.readers import ReadOptions, open_reader
from bigsvm.stores.store import Dataset

FILES = (".npy", ".txt")  # any other name is an array in the store


@dataclass(frozen=True)
class Weights:
    """The weights in the form that `Problem` takes.

    Attributes
    ----------
    C : float or (n,) float64
        One value, or one per pattern.
    margin : (n,) float64 or None
        The margins t of a weighted SVM.
    identity : dict
        Digests, to be compared when a run is resumed; None for what is not weighted.
    """

    C: float | np.ndarray
    margin: np.ndarray | None
    identity: dict[str, Any]


def read_weights(
    model: ModelConfig, dataset: Dataset, held_out: np.ndarray | None = None
) -> Weights:
    """Read and validate all weights that the section `model` names.

    Rows that are `held_out` have the weight 0.
    """
    margin = _read("model.weights", model.weights, dataset)
    sample = read_sample_weight(model, dataset)
    labels = dataset.labels()
    plain = model.plain_C(dataset.n, dataset.d)
    C: float | np.ndarray = plain
    if sample is not None or model.class_weight is not None or held_out is not None:
        C = np.full(dataset.n, plain)
        if sample is not None:
            C *= sample
        if model.class_weight is not None:
            _, place, counts = np.unique(labels, return_inverse=True, return_counts=True)
            C *= class_factors(model.class_weight, counts, dataset.classes)[place]
        if held_out is not None:
            C[held_out] = 0.0
    check_all_classes(C, margin, labels, dataset.classes)
    identity = {
        "weights": None if margin is None else weights_digest(margin),
        "sample_weight": None if sample is None else weights_digest(sample),
        "class_weight": model.class_weight,
    }
    return Weights(C, margin, identity)


def read_sample_weight(model: ModelConfig, dataset: Dataset) -> np.ndarray | None:
    """Read and validate the factors of C that `model.sample_weight` names."""
    return _read("model.sample_weight", model.sample_weight, dataset)


def class_factors(
    class_weight: str | Mapping[str, float], counts: np.ndarray, classes: Sequence[Label]
) -> np.ndarray:
    """The factor of C for each class: "balanced", or by label (default 1).

    Balanced is n / (n_classes * n_of_class), as in scikit-learn: all classes have equal weight.
    """
    if isinstance(class_weight, str):
        return counts.sum() / (len(counts) * counts)
    factors = np.ones(len(classes))
    for label, factor in class_weight.items():
        which = [same_label(known, label) for known in classes]
        if not any(which):
            known = describe_labels(classes)
            raise UserError(
                f"model.class_weight: {label!r} is not a class of the training set; {known}"
            )
        factors[which] = factor
    return factors


def bytes_per_pattern(model: ModelConfig, held_out: bool = False) -> int:
    """Memory of the weights: margin, signs and C; between rounds, also the new ones."""
    if model.algorithm == "rwsvm":
        return 7 * 8
    given = (model.weights, model.sample_weight, model.class_weight)
    return 3 * 8 if held_out or any(what is not None for what in given) else 0


def check_weights(values: np.ndarray, where: str) -> np.ndarray:
    """Convert weights to float64; a UserError if one is invalid or if all are 0.

    Parameters
    ----------
    values : (n,) array of numbers
    where : str
        Their origin, for messages.
    """
    values = np.asarray(values, np.float64).reshape(-1)
    fits = valid_weights(values)
    if not fits.all():
        row = int(np.argmin(fits))
        raise UserError(
            f"{where}: the weight of row {row} (counted from 0) is {values[row]:g}; {WEIGHT_RANGE}"
        )
    if not values.any():
        raise UserError(f"{where}: all weights are 0; at least one must be positive")
    return values


def _read(key: str, name: str | None, dataset: Dataset) -> np.ndarray | None:
    if name is None:
        return None
    if name.endswith(FILES):
        where = f"{key} = {name}"
        values = _from_file(Path(name), where)
    else:
        where, values = f"{dataset.path}/{name} ({key})", dataset.read_vector(name)
    if len(values) != dataset.n:
        raise UserError(
            f"{where}: {len(values):,} weights for a training set of {dataset.n:,} rows; one "
            "weight per row is needed"
        )
    return check_weights(values, where)


def _from_file(path: Path, where: str) -> np.ndarray:
    if not path.is_file():
        raise UserError(
            f"{where}: no such file; a name that does not end in "
            f"{' or '.join(FILES)} is that of an array in the store"
        )
    return _from_npy(path) if path.suffix == ".npy" else _from_text(path, where)


def _from_npy(path: Path) -> np.ndarray:
    try:
        values = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as damage:  # numpy raises errors of many kinds for damaged headers
        reason = " ".join(str(damage).split())[:200]
        raise UserError(f"{path}: not a readable NumPy array ({reason})") from damage
    if not isinstance(values, np.ndarray):  # an npz under another name
        values.close()
        raise UserError(f"{path}: has several arrays (npz); save the weights alone (numpy.save)")
    if values.dtype.kind not in "fiub" or values.shape not in ((values.size,), (values.size, 1)):
        raise UserError(
            f"{path}: {values.dtype} of shape {values.shape}; weights are one number per row"
        )
    return np.array(values)


def _from_text(path: Path, where: str) -> np.ndarray:
    reader = open_reader(path, ReadOptions(format="csv", header=False, with_labels=False))
    if reader.d != 1:
        raise UserError(f"{path}: {reader.d} columns; weights are one number per line")
    parts = []
    for batch in reader.batches():
        parts.append(batch.x[:, 0])
        if not (fits := valid_weights(parts[-1])).all():
            row = int(np.argmin(fits))
            raise UserError(
                f"{where}, {batch.location(row)}: the weight is {parts[-1][row]:g}; {WEIGHT_RANGE}"
            )
    return np.concatenate(parts)


def check_all_classes(
    C: float | np.ndarray, margin: np.ndarray | None, labels: np.ndarray, classes: Classes
) -> None:
    """Raise a UserError if all patterns of a class have the weight 0; `labels` are codes."""
    if margin is None and not isinstance(C, np.ndarray):
        return
    included = np.broadcast_to(C, labels.shape) > 0
    if margin is not None:
        included = included & (margin > 0)
    for label, code in zip(classes, np.unique(labels), strict=True):
        if not included[labels == code].any():
            raise UserError(
                f"all rows of class {label!r} have the weight 0; every class needs a positive one"
            )
