"""The model of `BigSVC` during its fit, for validation rows and scikit-learn's callbacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.backends import Backend
from bigsvm.core.labels import one_vs_rest_signs
from bigsvm.estimator.fit import FitOptions, FitResult, class_problems, result_at
from bigsvm.kernels import block_of, products
from bigsvm.models.scores import scores_of, scores_of_classes
from bigsvm.solvers.joint import JointState
from bigsvm.solvers.problem import Problem
from bigsvm.training.validation import held_out_rows

if TYPE_CHECKING:
    from bigsvm.estimator.classifier import BigSVC

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # before scikit-learn 1.9

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """A placeholder without methods."""

    def with_callbacks(method: Any) -> Any:
        """Add the stack frame of scikit-learn's decorator, so that warnings name the caller."""
        return wraps(method)(lambda *given, **options: method(*given, **options))


METRICS = ("auc", "accuracy", "balanced_accuracy", "f1")
VALIDATE_EVERY = 1000  # iterations


@dataclass(frozen=True)
class Coefficients:
    """The support vectors of all classes, and their coefficients (classes, m) in margin units."""

    index: np.ndarray
    values: np.ndarray

    def attributes(self, backend: Backend, options: FitOptions) -> dict[str, Any]:
        """The attributes of an estimator that `decision_function` needs."""
        return {
            "support_": self.index,
            "support_vectors_": backend.gather(self.index),
            "dual_coef_": self.values,
            "intercept_": options.intercept * self.values.sum(axis=1),
            "_kernel": options.kernel,
        }


class Iterates:
    """Computes coefficients and results at iterates of one fit.

    Parameters
    ----------
    backend : Backend
    codes : (n,) int
        The position of each row's class.
    n_outputs : int
        1, or the number of classes.
    options : FitOptions
    """

    def __init__(
        self, backend: Backend, codes: np.ndarray, n_outputs: int, options: FitOptions
    ) -> None:
        self.backend, self.options = backend, options
        # For two classes, the second against the first.
        positive = [1] if n_outputs == 1 else range(n_outputs)
        self.signs = [one_vs_rest_signs(codes, k) for k in positive]

    @cached_property
    def problems(self) -> list[Problem]:
        """The problem of each class against the rest; of two classes, one."""
        return class_problems(self.backend, self.signs, self.options)

    def coefficients(self, state: JointState) -> Coefficients:
        """The coefficients at an iterate."""
        each = _alphas(state)
        index = np.flatnonzero(np.any([alpha > 0 for alpha, _ in each], axis=0))
        values = [
            problem.dual_coef(index, alpha[index]) / margin
            for problem, (alpha, margin) in zip(self.problems, each, strict=True)
        ]
        return Coefficients(index, np.array(values))

    def alphas(self, state: JointState) -> list[np.ndarray]:
        """A copy of the alpha of each class."""
        return [alpha.copy() for alpha, _ in _alphas(state)]

    def results(self, alphas: Sequence[np.ndarray], fits: Sequence[FitResult]) -> list[FitResult]:
        """The results at earlier iterates of a fit; iterations and passes are those of the fit."""
        found = []
        for problem, alpha, fit in zip(self.problems, alphas, fits, strict=True):
            here = result_at(problem, problem.state_at(alpha), "early_stopping", fit.useless)
            found.append(replace(here, iterations=fit.iterations, passes=fit.passes + 1))
        return found


def _alphas(state: JointState) -> list[tuple[np.ndarray, float]]:
    """The alpha of each class now, and its a'Qa."""
    return [(state.now(k).alpha, state.quad_form(k)) for k in range(len(state.classes))]


class EarlyStopping:
    """Scores iterates on held-out rows, keeps the best, and stops a fit that no longer improves.

    Parameters
    ----------
    estimator : BigSVC
        Has `early_stopping` and `n_iter_no_change`.
    iterates : Iterates
    held_out : (m,) int64
        The rows.
    codes : (m,) int
        Their classes, by position.
    """

    def __init__(
        self, estimator: BigSVC, iterates: Iterates, held_out: np.ndarray, codes: np.ndarray
    ) -> None:
        metric = estimator.early_stopping
        self._metric = "auc" if metric is True else str(metric)
        self._patience = int(estimator.n_iter_no_change)
        self._iterates, self._codes = iterates, codes
        self._rows = iterates.backend.gather(held_out)
        self._best: tuple[float, list[np.ndarray]] | None = None
        self.scores: list[dict[str, float]] = []

    def __call__(self, state: JointState) -> str | None:
        """Score an iterate every VALIDATE_EVERY iterations; a status if the fit is to stop."""
        last = self.scores[-1]["iteration"] if self.scores else 0
        if state.iteration < last + VALIDATE_EVERY:
            return None
        score = self._score(state.iteration, self._iterates.coefficients(state))
        if self._best is None or score > self._best[0]:
            self._best = score, self._iterates.alphas(state)
        values = [line[self._metric] for line in self.scores]
        waited = len(values) - 1 - values.index(max(values))
        return "early_stopping" if waited >= self._patience else None

    def best(self, fits: list[FitResult]) -> list[FitResult]:
        """The results of the fit, or those of the iterate that has the higher score."""
        coef = np.array([fit.coef for fit in fits])
        index = np.flatnonzero(coef.any(axis=0))
        iteration = sum(fit.iterations for fit in fits)
        score = self._score(iteration, Coefficients(index, coef[:, index]))
        if self._best is None or score >= self._best[0]:
            return fits
        return self._iterates.results(self._best[1], fits)

    def _score(self, iteration: int, coef: Coefficients) -> float:
        options, backend = self._iterates.options, self._iterates.backend
        shifts = options.intercept * coef.values.sum(axis=1)
        decision = np.repeat(shifts[:, None], len(self._rows), axis=1)
        support = backend.gather(coef.index)
        values = np.ascontiguousarray(coef.values.T)
        products(options.kernel, block_of(self._rows), support, values, decision)
        if len(decision) == 1:
            found = scores_of(2 * self._codes - 1, decision[0])
        else:
            found, _ = scores_of_classes(self._codes, decision.T)
        self.scores.append({"iteration": iteration, **asdict(found)})
        return float(self.scores[-1][self._metric])


class SklearnCallbacks:
    """Calls the callbacks of scikit-learn 1.9 and later (`set_callbacks`) at every iterate.

    Parameters
    ----------
    estimator : BigSVC
    context : sklearn.callback.CallbackContext
        Of the fit.
    iterates : Iterates
    data : dict
        X and y.
    """

    def __init__(
        self, estimator: BigSVC, context: Any, iterates: Iterates, data: dict[str, Any]
    ) -> None:
        self._estimator, self._context = estimator, context
        self._iterates, self._data = iterates, data
        context.call_on_fit_task_begin(estimator=estimator, **data)

    @classmethod
    def of(
        cls, estimator: BigSVC, iterates: Iterates, data: dict[str, Any]
    ) -> SklearnCallbacks | None:
        """The callbacks of an estimator; None if it has none, or scikit-learn is too old."""
        if not getattr(estimator, "_skl_callbacks", None):
            return None
        return cls(estimator, estimator._init_callback_context(max_subtasks=None), iterates, data)

    def end(self) -> None:
        """Call the callbacks at the end of the fit, once its attributes are set."""
        self._context.call_on_fit_task_end(
            estimator=self._estimator, **self._data, reconstruction_attributes={}
        )

    def __call__(self, state: JointState) -> str | None:
        """Call the callbacks at an iterate; "callback" if one of them asks to stop."""

        def attributes() -> dict[str, Any]:  # only if a callback takes the fitted estimator
            found = self._iterates.coefficients(state)
            made = found.attributes(self._iterates.backend, self._iterates.options)
            return made | {"classes_": np.unique(self._data["y"])}

        task = self._context.subcontext(task_name="iterate")
        task.call_on_fit_task_begin(estimator=self._estimator, **self._data)
        stop = task.call_on_fit_task_end(
            estimator=self._estimator, **self._data, reconstruction_attributes=attributes
        )
        return "callback" if stop else None


def rows_to_hold_out(
    estimator: BigSVC, classes: np.ndarray, codes: np.ndarray
) -> np.ndarray | None:
    """The rows that `early_stopping` holds out of the training; None without it."""
    metric = estimator.early_stopping
    if metric is False:
        return None
    if metric is not True and metric not in METRICS:
        raise ValueError(f"early_stopping={metric!r}: choose True, False or one of {METRICS}")
    fraction = estimator.validation_fraction
    if not isinstance(fraction, float) or not 0 < fraction < 1:
        raise ValueError(f"validation_fraction={fraction!r}: must be a number between 0 and 1")
    if estimator.algorithm == "rwsvm":
        raise ValueError("early_stopping: is not supported by the algorithm rwsvm; choose another")
    seed = 0 if estimator.random_state is None else estimator.random_state
    if not isinstance(seed, int | np.integer):
        seed = int(seed.randint(2**31))
    as_stored = 2 * codes - 1 if len(classes) == 2 else codes
    return held_out_rows(as_stored, tuple(classes.tolist()), fraction, int(seed))


def without_rows(sample_weight: Any, held_out: np.ndarray, n: int) -> np.ndarray:
    """The weights with 0 for the rows that are held out."""
    given = np.ones(n) if sample_weight is None else np.asarray(sample_weight, float)
    weight = np.broadcast_to(given, n).copy()
    weight[held_out] = 0.0
    return weight
