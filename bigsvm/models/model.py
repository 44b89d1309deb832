"""A trained model, its decision function, and its file format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bigsvm.core.arrays import RowChunks
from bigsvm.core.errors import UserError
from bigsvm.core.labels import check_label, classes_array, classes_from_json, classes_to_json
from bigsvm.core.scaling import Scaling
from bigsvm.files.checked_tensors import read_tensors, write_tensors
from bigsvm.kernels import NAMES, Kernel, block_of, products
from bigsvm.models.calibration import Calibration
from bigsvm.models.double_precision import precise_decisions
from bigsvm.models.named_rows import as_rows
from bigsvm.tables.encoding import Encoding

FORMAT = "bigsvm model 1"
WITH_INTERCEPT = "bigsvm model 2"  # a new name, so that older versions do not ignore the intercept
MANY_CLASSES = "bigsvm model 3"  # more than two classes, with or without intercepts
WITH_THRESHOLD = "bigsvm model 4"  # two classes, with or without an intercept
Intercept = float | tuple[float, ...]
_CHUNK_ROWS = 65_536


@dataclass(frozen=True, repr=False)
class Model:
    """A sparse kernel SVM, ``f(x) = sum_j dual_coef_j k(support_vector_j, x) + intercept``.

    With more than two classes, each has its own f (one-vs-rest); the largest wins, the first in a
    tie.

    Attributes
    ----------
    support_vectors : (m, d) float32
        Scaled, as used in training.
    dual_coef : (m,) float64
        alpha_j y_j. For more than two classes (classes, m), normalised so that f has the same value
        on the margin of every class.
    support_index : (m,) int64
        The rows of the training set they are, ascending.
    kernel : dict
        Name and parameters.
    classes : tuple
        The original labels: of f < threshold and of f >= threshold, or one for each f.
    scaling : Scaling or None
        The scaling that `prepare` applied; `decision_function` applies it to raw rows.
    about : dict
        Origin: algorithm, C, iteration, n_working, margin, source, fingerprint, ...
    intercept : float or tuple
        0 unless trained with `model.intercept`; one per class for more than two.
    threshold : float
        For two classes: rows with at least this decision value are of the second class; 0 unless
        fitted to the training rows (`model.threshold`).
    calibration : Calibration or None
        How decision values become probabilities, once `bigsvm.calibrate` has fitted it.
    """

    support_vectors: np.ndarray
    dual_coef: np.ndarray
    support_index: np.ndarray
    kernel: Mapping[str, Any]
    classes: tuple[Any, ...]
    scaling: Scaling | None = None
    about: Mapping[str, Any] = field(default_factory=dict)
    intercept: Intercept = 0.0
    threshold: float = 0.0
    calibration: Calibration | None = None

    def __repr__(self) -> str:
        return (
            f"Model({self.kernel['name']}, {self.n_support} support vectors, "
            f"{self.n_features} features, classes {self.classes})"
        )

    @property
    def n_support(self) -> int:
        """Number of support vectors."""
        return len(self.support_vectors)

    @property
    def n_features(self) -> int:
        """Number of features of a row."""
        return int(self.support_vectors.shape[1])

    @property
    def feature_names(self) -> list[str] | None:
        """The names of the features, if the training data had names."""
        names = self.about.get("feature_names")
        if not isinstance(names, list) or len(names) != self.n_features:
            return None
        return [str(name) for name in names]

    @property
    def encoding(self) -> Encoding | None:
        """How the columns of a table become features, if `prepare` encoded them."""
        found = self.about.get("encoding")
        if found is None:
            return None
        encoding = Encoding.from_json(found)
        if len(encoding.features) != self.n_features:
            raise ValueError("its encoding of columns makes another number of features")
        return encoding

    @property
    def label_column(self) -> str | None:
        """The column of the training table that held the labels, if it had a name."""
        found = self.about.get("label_column")
        return None if found is None else str(found)

    @property
    def margin(self) -> float | None:
        """a'Qa, about the decision value of a support vector; None in files of older versions.

        Decision values divided by it are in units of the margin, as those of `BigSVC` are.
        """
        found = self.about.get("margin")
        if found is None:
            return None
        if not isinstance(found, int | float) or not 0 < found < np.inf:
            raise ValueError(f"its margin is {found!r}")
        return float(found)

    def decision_function(
        self, X: Any, *, scaled: bool = False, precise: bool = False
    ) -> np.ndarray:
        """The decision values of rows: (rows,), or (rows, classes) for more than two classes.

        Parameters
        ----------
        X : (rows, features) array, data frame or Arrow table
            Raw rows, before scaling. Columns are matched by name if the model has names
            (`feature_names`): missing ones are an error, others are ignored.
        scaled : bool
            The rows are scaled already, as in a prepared store.
        precise : bool
            Compute in float64, as ONNX Runtime and LIBSVM do: many times slower.

        Returns
        -------
        (rows,) float64 array
        """
        X = as_rows(X, self.feature_names, self.encoding)
        if X.ndim != 2 or X.shape[1] != self.n_features:
            raise UserError(
                f"rows of shape {X.shape} given to a model of {self.n_features} features; "
                f"it takes (rows, {self.n_features})"
            )
        if X.dtype.kind not in "fiub":
            raise UserError(f"rows of {X.dtype} given to a model; it takes numbers")
        kernel, coef = Kernel(**self.kernel), self.columns
        decision = np.repeat(self.shifts[:, None], len(X), axis=1)
        for start in range(0, len(X), _CHUNK_ROWS):
            rows = X[start : start + _CHUNK_ROWS]
            if self.scaling and not scaled:
                rows = self.scaling.apply(rows)
            if place := not_in_float32(rows):
                row, column = place
                raise UserError(
                    f"row {start + row}, column {column} (counted from 0) is not a finite number, "
                    "or does not fit into float32 once scaled; replace it or remove the row"
                )
            if precise:
                decision[:, start : start + len(rows)] += precise_decisions(
                    kernel, rows, self.support_vectors, coef
                )
            else:
                products(kernel, block_of(rows, start), self.support_vectors, coef, decision)
        return decision[0] if self.dual_coef.ndim == 1 else decision.T

    @property
    def format(self) -> str:
        """The name of the file format: the oldest that can represent the model."""
        if len(self.classes) > 2:
            return MANY_CLASSES
        if self.threshold:
            return WITH_THRESHOLD
        return WITH_INTERCEPT if self.intercept else FORMAT

    @property
    def shifts(self) -> np.ndarray:
        """The intercept of each decision value: one, or one for each class."""
        return np.broadcast_to(self.intercept, self.columns.shape[1]).astype(np.float64)

    @property
    def columns(self) -> np.ndarray:
        """The coefficients (m, decision values): one column, or one for each class."""
        return self.dual_coef[:, None] if self.dual_coef.ndim == 1 else self.dual_coef.T.copy()

    def predict(self, X: Any, *, scaled: bool = False) -> np.ndarray:
        """The original class label of each row.

        Parameters
        ----------
        X, scaled
            As for `decision_function`.

        Returns
        -------
        (rows,) array
        """
        return self.labels_of(self.decision_function(X, scaled=scaled))

    def predict_proba(self, X: Any, *, scaled: bool = False) -> np.ndarray:
        """The probability of each class for each row, where the model has been calibrated.

        The label of `predict` follows from the decision value, so it need not be the most probable
        class.

        Parameters
        ----------
        X, scaled
            As for `decision_function`.

        Returns
        -------
        (rows, classes) array
            In the order of `classes`.
        """
        return self.probabilities_of(self.decision_function(X, scaled=scaled))

    def probabilities_of(self, decision: np.ndarray) -> np.ndarray:
        """The probabilities (rows, classes) for decision values.

        Parameters
        ----------
        decision : array
            As returned by `decision_function`.

        Returns
        -------
        (rows, classes) array
        """
        if self.calibration is None:
            raise UserError(
                "the model has no probabilities; fit them with python -m bigsvm.calibrate MODEL "
                "--on FILE"
            )
        return self.calibration.probabilities(decision)

    def labels_of(self, decision: np.ndarray) -> np.ndarray:
        """The class labels for decision values.

        Parameters
        ----------
        decision : array
            As returned by `decision_function`.

        Returns
        -------
        (rows,) array
        """
        return classes_array(self.classes)[self.places_of(decision)]

    def places_of(self, decision: np.ndarray) -> np.ndarray:
        """The predicted class for decision values, as a position in `classes`.

        Parameters
        ----------
        decision : (rows,) or (rows, classes) array
            As returned by `decision_function`.

        Returns
        -------
        (rows,) int array
        """
        if decision.ndim == 1:
            return (decision >= self.threshold).astype(int)
        return decision.argmax(axis=1)

    def save(self, path: Path | str) -> None:
        """Write the model to a safetensors file; the same model gives the same bytes.

        Parameters
        ----------
        path : Path or str
        """
        write_model(self, self.support_vectors, Path(path))


def not_in_float32(rows: np.ndarray) -> tuple[int, int] | None:
    """Row and column of the first value that is not finite in float32, or None."""
    with np.errstate(over="ignore"):
        finite = np.isfinite(rows.astype(np.float32, copy=False))
    if finite.all():
        return None
    row, column = np.argwhere(~finite)[0]
    return int(row), int(column)


def write_model(model: Model, support_vectors: np.ndarray | RowChunks, path: Path) -> None:
    """Write a model to a file, with support vectors that may be streamed.

    A UserError if a number is not finite: the file may replace a good model.
    """
    numbers = (model.dual_coef, np.asarray(model.intercept), np.asarray(model.threshold))
    if not all(np.isfinite(values).all() for values in numbers):
        raise UserError(f"{path}: not written, because a coefficient of the model is not finite")
    if isinstance(support_vectors, np.ndarray) and not np.isfinite(support_vectors).all():
        raise UserError(f"{path}: not written, because a support vector is not finite")
    arrays = {
        "support_vectors": support_vectors,
        "dual_coef": model.dual_coef,
        "support_index": model.support_index,
    }
    about = {
        "format": model.format,
        "kernel": dict(model.kernel),
        **classes_to_json(model.classes),
        "scaling": model.scaling.to_json() if model.scaling else None,
        "about": dict(model.about),
        **({"intercept": model.intercept} if model.intercept else {}),
        **({"threshold": model.threshold} if model.threshold else {}),
        **({"calibration": model.calibration.to_json()} if model.calibration else {}),
    }
    write_tensors(path, arrays, about)


def load_model(path: Path | str) -> Model:
    """Load a model or snapshot. Safe for untrusted files: they hold data, never code.

    Parameters
    ----------
    path : Path or str
        A file, or a run directory: its `model.safetensors`.

    Returns
    -------
    Model
    """
    path = Path(path)
    if path.is_dir():
        path = path / "model.safetensors"
    arrays, about = read_tensors(path)
    if about.get("format") not in (FORMAT, WITH_INTERCEPT, MANY_CLASSES, WITH_THRESHOLD):
        raise UserError(
            f"{path}: is {about.get('format', 'something else')!r}, not {FORMAT!r} to "
            f"{WITH_THRESHOLD!r}; use it with the version of bigsvm that wrote it, or train again"
        )
    try:
        return _build_model(arrays, about)
    except (LookupError, TypeError, ValueError, AttributeError) as problem:
        raise UserError(f"{path}: is undamaged, but not a valid model ({problem})") from problem


def _build_model(arrays: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> Model:
    """Build and validate a model; the checksum only proves that its file is undamaged."""
    rows, coef = arrays["support_vectors"], arrays["dual_coef"]
    classes = classes_from_json(about)
    many = about["format"] == MANY_CLASSES
    if (len(classes) > 2) != many or len(classes) < 2 or len(set(classes)) != len(classes):
        raise ValueError(f"its classes are {classes}")
    shape = (len(classes), len(rows)) if many else rows.shape[:1]
    if rows.ndim != 2 or coef.shape != shape or arrays["support_index"].shape != rows.shape[:1]:
        raise ValueError("the shapes of its arrays disagree")
    if rows.shape[1] == 0:
        raise ValueError("it has no features")
    index = arrays["support_index"]
    if (rows.dtype, coef.dtype, index.dtype) != (np.float32, np.float64, np.int64):
        raise ValueError("its arrays have other types than those of a model")
    if not (np.isfinite(rows).all() and np.isfinite(coef).all()):
        raise ValueError("a value in it is not finite")
    if len(index) and (index[0] < 0 or (np.diff(index) <= 0).any()):
        raise ValueError("its support_index is not ascending")
    kernel = Kernel(**about["kernel"])
    whole = isinstance(kernel.degree, int)
    if kernel.name not in NAMES or not whole or not 1 <= kernel.degree <= 20:
        raise ValueError(f"unknown kernel {kernel}")
    if not np.isfinite([kernel.gamma, kernel.coef0]).all():
        raise ValueError("a parameter of its kernel is not finite")
    for label in classes:
        check_label(label)
    scaling = Scaling.from_json(about["scaling"]) if about["scaling"] else None
    if scaling and not scaling.offset.shape == scaling.scale.shape == rows.shape[1:]:
        raise ValueError("its scaling has another number of features")
    intercept = _intercept_of(about, len(classes))
    threshold = float(about["threshold"]) if about["format"] == WITH_THRESHOLD else 0.0
    if not np.isfinite(threshold):
        raise ValueError("its threshold is not finite")
    calibration = None
    if "calibration" in about:  # in any format: it does not change the labels
        calibration = Calibration.from_json(about["calibration"], len(classes) if many else 1)
    found, kernel_given = dict(about["about"]), about["kernel"]
    numbers = (intercept, threshold, calibration)
    made = Model(rows, coef, index, kernel_given, classes, scaling, found, *numbers)
    _ = made.encoding, made.margin  # raise a ValueError if they are invalid
    return made


def _intercept_of(about: Mapping[str, Any], classes: int) -> Intercept:
    optional = about["format"] in (MANY_CLASSES, WITH_THRESHOLD)
    if about["format"] == FORMAT or (optional and "intercept" not in about):
        return 0.0
    found = about["intercept"]
    intercept = float(found) if classes == 2 else tuple(float(value) for value in found)
    if not np.isfinite(intercept).all() or np.size(intercept) != (1 if classes == 2 else classes):
        raise ValueError("its intercept is not finite, or not of its classes")
    return intercept
