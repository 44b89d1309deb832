"""Probabilities from decision values: Platt's sigmoid or isotonic regression, one per output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from bigsvm.core.errors import UserError

Method = Literal["sigmoid", "isotonic"]
METHODS: tuple[Method, ...] = get_args(Method)
BINS = 10  # of a calibration curve
_NEWTON_STEPS = 100


class Sigmoid(NamedTuple):
    """P(f) = 1 / (1 + exp(slope f + offset))."""

    slope: float
    offset: float

    def __call__(self, decision: np.ndarray) -> np.ndarray:
        """The probability of each decision value."""
        return _logistic(-(self.slope * decision + self.offset))


class Isotonic(NamedTuple):
    """A non-decreasing function, linear between its knots and constant outside of them."""

    knots: np.ndarray
    values: np.ndarray

    def __call__(self, decision: np.ndarray) -> np.ndarray:
        """The probability of each decision value."""
        return np.interp(decision, self.knots, self.values)


@dataclass(frozen=True)
class Calibration:
    """How the decision values of a model become probabilities.

    Attributes
    ----------
    method : {"sigmoid", "isotonic"}
    outputs : tuple
        A `Sigmoid` or `Isotonic` of the second class, or one of each class against the rest.
    about : dict
        What it was fitted on.
    """

    method: Method
    outputs: tuple[Sigmoid | Isotonic, ...]
    about: Mapping[str, Any] = field(default_factory=dict)

    def probabilities(self, decision: np.ndarray) -> np.ndarray:
        """The probabilities (rows, classes) of decision values, (rows,) or (rows, classes).

        Those of more than two classes are normalised; where all are 0 they are equal.
        """
        if decision.ndim == 1:
            second = self.outputs[0](decision)
            return np.column_stack([1 - second, second])
        each = [output(decision[:, k]) for k, output in enumerate(self.outputs)]
        found = np.column_stack(each)
        total = found.sum(axis=1, keepdims=True)
        with np.errstate(invalid="ignore"):
            return np.where(total > 0, found / total, 1 / len(each))

    def to_json(self) -> dict[str, Any]:
        """The calibration as JSON, exactly."""
        outputs = [[np.asarray(values).tolist() for values in output] for output in self.outputs]
        return {"method": self.method, "outputs": outputs, "about": dict(self.about)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any], n_outputs: int) -> Calibration:
        """The calibration of `to_json`, validated; a ValueError says what is wrong with it."""
        method, outputs = content["method"], content["outputs"]
        if method not in METHODS or len(outputs) != n_outputs:
            raise ValueError(f"its calibration is {method!r} with {len(outputs)} outputs")
        made: tuple[Sigmoid | Isotonic, ...]
        if method == "sigmoid":
            made = tuple(Sigmoid(float(slope), float(offset)) for slope, offset in outputs)
            valid = all(np.isfinite(output).all() for output in made)
        else:
            made = tuple(Isotonic(*np.array(output, np.float64)) for output in outputs)
            valid = all(_is_isotonic(*output) for output in made)
        if not valid:
            raise ValueError("its calibration does not map decision values to probabilities")
        return cls(method, made, dict(content["about"]))


def _is_isotonic(knots: np.ndarray, values: np.ndarray) -> bool:
    finite = bool(np.isfinite(knots).all() and len(knots) > 0)
    rising = (np.diff(knots) > 0).all() and (np.diff(values) >= 0).all()
    return finite and bool(rising and values[0] >= 0 and values[-1] <= 1)


def fit_calibration(
    decision: np.ndarray,
    places: np.ndarray,
    classes: Sequence[Any],
    method: Method,
    weight: np.ndarray | None = None,
    about: Mapping[str, Any] | None = None,
) -> Calibration:
    """Fit a calibration to rows that the model was not trained on.

    Parameters
    ----------
    decision : (rows,) or (rows, classes) array
        Finite decision values.
    places : (rows,) integers
        The class of each row, by its position in `classes`.
    classes : sequence of labels
    method : {"sigmoid", "isotonic"}
    weight : (rows,) array, optional
        How much each row counts.
    about : dict, optional
        What it is fitted on.

    Returns
    -------
    Calibration
    """
    columns = decision[:, None] if decision.ndim == 1 else decision
    weight = np.ones(len(columns)) if weight is None else weight
    kept = weight > 0
    columns, places, weight = columns[kept], places[kept], weight[kept]
    for k, label in enumerate(classes):
        if not (places == k).any():
            raise UserError(
                f"a calibration needs rows of every class, and none of the {len(places):,} rows is "
                f"of class {label!r}"
            )
    fit = fit_sigmoid if method == "sigmoid" else fit_isotonic
    outputs = []
    for k, values in enumerate(columns.T):
        positive = places == (1 if decision.ndim == 1 else k)
        outputs.append(fit(values, positive, weight))
    return Calibration(method, tuple(outputs), about or {})


def fit_sigmoid(decision: np.ndarray, positive: np.ndarray, weight: np.ndarray) -> Sigmoid:
    """Platt's sigmoid, by the Newton method of Lin, Lin and Weng (2007).

    Targets are those of Platt: a little inside of 0 and 1, by the number of rows.
    """
    unit = float(np.abs(decision).max()) or 1.0
    f = decision / unit
    above, below = float(weight[positive].sum()), float(weight[~positive].sum())
    target = np.where(positive, (above + 1) / (above + 2), 1 / (below + 2))
    slope, offset = 0.0, float(np.log((below + 1) / (above + 1)))
    loss = _log_loss(slope * f + offset, target, weight)
    for _ in range(_NEWTON_STEPS):
        p = _logistic(-(slope * f + offset))
        d1, d2 = weight * (target - p), weight * p * (1 - p)
        gradient = np.array([np.sum(f * d1), np.sum(d1)])
        if np.abs(gradient).max() < 1e-9 * weight.sum():
            break
        cross = np.sum(f * d2)
        hessian = np.array([[np.sum(f * f * d2), cross], [cross, np.sum(d2)]])
        step = -np.linalg.solve(hessian + 1e-12 * np.eye(2), gradient)
        size = 1.0
        while size >= 1e-10:
            tried = slope + size * step[0], offset + size * step[1]
            loss_there = _log_loss(tried[0] * f + tried[1], target, weight)
            if loss_there < loss + 1e-4 * size * float(gradient @ step):
                break
            size /= 2
        else:
            break  # no step improves the loss beyond rounding
        (slope, offset), loss = tried, loss_there
    return Sigmoid(float(slope / unit), float(offset))


def fit_isotonic(decision: np.ndarray, positive: np.ndarray, weight: np.ndarray) -> Isotonic:
    """Isotonic regression by pooling adjacent violators; equal decision values are one point."""
    points, place = np.unique(decision, return_inverse=True)
    mass = np.bincount(place, weight)
    share = np.bincount(place, weight * positive) / mass
    blocks: list[tuple[float, float, int]] = []  # value, weight, the first point
    for first, (value, size) in enumerate(zip(share.tolist(), mass.tolist(), strict=True)):
        while blocks and blocks[-1][0] >= value:
            before, heavy, first = blocks.pop()
            value = (value * size + before * heavy) / (size + heavy)
            size += heavy
        blocks.append((value, size, first))
    starts = np.array([first for *_, first in blocks])
    ends = np.append(starts[1:], len(points)) - 1
    values = np.clip([value for value, *_ in blocks], 0.0, 1.0)
    # A block of one point has one knot, any other one at each end.
    ranks = np.column_stack([starts, ends]).ravel()
    kept = np.append(True, np.diff(ranks) > 0)
    return Isotonic(points[ranks[kept]], np.repeat(values, 2)[kept])


def _logistic(z: np.ndarray) -> np.ndarray:
    small = np.exp(-np.abs(z))  # never overflows
    return np.where(z >= 0, 1.0, small) / (1 + small)


def _log_loss(z: np.ndarray, target: np.ndarray, weight: np.ndarray) -> float:
    """The cross-entropy of 1 / (1 + exp(z))."""
    return float(np.sum(weight * (np.logaddexp(0, z) - (1 - target) * z)))


@dataclass(frozen=True)
class Reliability:
    """How reliable probabilities are: the content of calibration.json.

    Attributes
    ----------
    rows : int
    brier_score : float
        Of two classes the mean of (p - y)^2; of more, summed over the classes.
    log_loss : float
        Mean -log of the probability of the true class, at least 1e-15.
    expected_calibration_error : float
        The mean distance between probability and share over the bins, weighted by their rows.
    curve : list of dict
        For each non-empty bin of ten equal ones: `rows`, their mean `probability` and the `share`
        of them in the class. For two classes that is the second; for more, the most probable.
    """

    rows: int
    brier_score: float
    log_loss: float
    expected_calibration_error: float
    curve: list[dict[str, float]]


def reliability_of(probabilities: np.ndarray, places: np.ndarray) -> Reliability:
    """The reliability of probabilities (rows, classes) where classes are known by position."""
    n, count = probabilities.shape
    truth = places[:, None] == np.arange(count)
    errors = np.square(probabilities - truth).sum(axis=1)
    true = np.clip(probabilities[truth], 1e-15, 1.0)
    chosen = np.ones(n, int) if count == 2 else probabilities.argmax(axis=1)
    p = np.take_along_axis(probabilities, chosen[:, None], axis=1)[:, 0]
    hit = places == chosen
    bins = np.minimum((p * BINS).astype(int), BINS - 1)
    rows = np.bincount(bins, minlength=BINS)
    means = [
        {"rows": int(rows[b]), "probability": float(p[bins == b].mean()),
         "share": float(hit[bins == b].mean())}
        for b in np.flatnonzero(rows)
    ]  # fmt: skip
    error = sum(part["rows"] * abs(part["probability"] - part["share"]) for part in means) / n
    return Reliability(
        n,
        float(errors.mean()) / (2 if count == 2 else 1),
        float(-np.log(true).mean()),
        error,
        means,
    )
