"""The scores of a run's snapshots, and of its final model, on a test set."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from math import isnan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bigsvm.core.errors import UserError
from bigsvm.core.labels import Classes, class_codes
from bigsvm.core.messages import Progress, no_progress
from bigsvm.files.atomic import write_csv, write_text
from bigsvm.models.calibration import Calibration, Reliability, reliability_of
from bigsvm.models.model import Model, load_model
from bigsvm.models.scores import (
    Curves,
    Scores,
    confusion_of,
    curves_of,
    scores_from_confusion,
    scores_of,
    scores_of_classes,
)
from bigsvm.models.scoring import (
    Scorer,
    Spec,
    chunks_of,
    open_test_set,
    places_of_codes,
    score_chunks,
)
from bigsvm.stores.store import Dataset

# The limit for the decision values, and for the coefficients, of the snapshots of one pass.
PASS_BYTES = 256 * 2**20
UNBALANCED = 0.65  # the share of a class from which on accuracy is not informative
FINDS_BOTH = 0.55  # a balanced accuracy clearly above chance


class Majority(NamedTuple):
    """The majority class of a test set: a useless model always predicts it."""

    label: Any
    share: float

    @property
    def is_large(self) -> bool:
        """Whether the class is so large that accuracy is not informative."""
        return self.share >= UNBALANCED

    def warning(self, accuracy: float, balanced_accuracy: float) -> str | None:
        """A warning if a model of this accuracy is no better than the baseline."""
        if accuracy > self.share or self.share == 1:  # of one class alone there is no baseline
            return None
        baseline = f"always predicting {self.label!r}, which is right in {100 * self.share:.2f} %"
        if balanced_accuracy > FINDS_BOTH:  # as a model trained with balanced classes does
            return (
                f"no better than {baseline}, by accuracy; it finds other classes, too: judge it by "
                "balanced accuracy and AUC"
            )
        return (
            f"no better than {baseline}; try model.threshold: balanced, or class_weight: balanced"
        )


def majority_of(codes: np.ndarray, classes: Classes) -> Majority:
    """The largest class among label codes."""
    known = class_codes(classes)
    counts = np.bincount(np.searchsorted(known, codes), minlength=len(known))
    largest = int(counts.argmax())
    return Majority(classes[largest], float(counts[largest] / len(codes)))


class Confusion(NamedTuple):
    """The confusion matrix: true classes in rows, predicted classes in columns."""

    classes: Classes
    counts: np.ndarray

    def lines(self) -> Iterator[str]:
        """Recall, precision and F1 of each class, as text."""
        names = [str(label) for label in self.classes]
        width = max(map(len, [*names, "class"])) + 2
        yield f"{'class':<{width}}{'rows':>9}{'recall':>10}{'precision':>10}{'F1':>10}"
        for k, name in enumerate(names):
            hits, rows = self.counts[k, k], self.counts[k].sum()
            chosen = self.counts[:, k].sum()
            shares = [(hits, rows), (hits, chosen), (2 * hits, rows + chosen)]
            shown = (f"{'-' if not n else f'{100 * part / n:.2f} %':>10}" for part, n in shares)
            yield f"{name:<{width}}{rows:>9,}" + "".join(shown)


@dataclass(frozen=True)
class Row(Scores):
    """The scores of a snapshot: one line of evaluation.csv."""

    iteration: int
    n_support: int
    n_working: int | None  # not recorded by `BigSVC`
    confusion: Confusion | None = field(default=None, compare=False)
    majority: Majority | None = None
    threshold: float = 0.0
    at_zero: Scores | None = None  # if the threshold is not 0
    # Only for the latest model, and two classes.
    curves: Curves | None = field(default=None, compare=False)
    # Only of a calibrated model.
    reliability: Reliability | None = field(default=None, compare=False)

    def line(self) -> str:
        """The scores as text, aligned under `HEADING`."""
        scores = (self.accuracy, self.balanced_accuracy, self.f1, self.auc)
        shown = (f"{'-' if isnan(score) else f'{100 * score:.2f} %':>9}" for score in scores)
        return (
            f"{self.iteration:>11,}"
            + "".join(shown)
            + f"{self.n_support:>11,}"
            + ("          -" if self.n_working is None else f"{self.n_working:>11,}")
            + self._at_zero()
        )

    def _at_zero(self) -> str:
        """The scores at threshold 0, if the model has another one."""
        if self.at_zero is None:
            return ""
        zero = self.at_zero
        return f"  at 0: {100 * zero.accuracy:.2f} %, balanced {100 * zero.balanced_accuracy:.2f} %"

    def cells(self) -> dict[str, object]:
        """The columns of evaluation.csv, including those of the threshold 0."""
        found: dict[str, object] = {name: getattr(self, name) for name in COLUMNS}
        zero = self.at_zero or self
        at_zero = (self.threshold, zero.accuracy, zero.balanced_accuracy)
        return found | dict(zip(COLUMNS_OF_THRESHOLDS, at_zero, strict=True))


COLUMNS = ("iteration", *(score.name for score in fields(Scores)), "n_support", "n_working")
COLUMNS_OF_THRESHOLDS = ("threshold", "accuracy_at_zero", "balanced_accuracy_at_zero")
HEADING = (
    f"{'iteration':>11}{'accuracy':>9}{'balanced':>9}{'F1':>9}{'AUC':>9}"
    f"{'support':>11}{'working':>11}"
)


def evaluate_snapshots(
    paths: Sequence[Path],
    test: Spec,
    progress: Progress = no_progress,
    warn: Callable[[str], None] | None = None,
) -> list[Row]:
    """Score models of one training on a test set.

    The test set is streamed once and each kernel value is computed once for all snapshots, as long
    as their decision values fit into PASS_BYTES; otherwise for groups of snapshots.

    Parameters
    ----------
    paths : sequence of paths
        Snapshots or final models.
    test : path or mapping
        As for `bigsvm.stores.store.open_dataset`; scaled like the training data.
    progress : callable
        Called with (what is being done, amount done, total).
    warn : callable, optional
        Called with a line for each array of the test set with missing chunks.

    Returns
    -------
    list of Row
        One for each path.
    """
    first = load_model(paths[0])
    with open_test_set(test, first) as dataset:
        if warn is not None:
            for line in dataset.missing_chunk_warnings():
                warn(line)
        # A support vector takes 4 d bytes, its coefficient and index 16.
        most_support = max(path.stat().st_size for path in paths) // (4 * dataset.d + 16)
        width = first.columns.shape[1]
        at_a_time = max(1, PASS_BYTES // (8 * width * max(dataset.n, most_support)))
        rows: list[Row] = []
        for start in range(0, len(paths), at_a_time):
            rows += _one_pass(paths[start : start + at_a_time], first, dataset, progress)
        return rows


def _one_pass(
    paths: Sequence[Path], first: Model, dataset: Dataset, progress: Progress
) -> list[Row]:
    facts: list[dict[str, Any]] = []
    thresholds: list[float] = []
    calibrations: list[Calibration | None] = []

    def models() -> Iterator[Model]:
        for path in paths:
            model = load_model(path)
            _check_same_training(path, model, first)
            working = model.about.get("n_working")
            facts.append({"iteration": _iteration(path, model), "n_support": model.n_support})
            facts[-1]["n_working"] = working if isinstance(working, int) else None
            thresholds.append(model.threshold)
            calibrations.append(model.calibration)
            yield model

    scorer = Scorer(models())
    width = () if len(first.classes) == 2 else (len(first.classes),)
    decisions = np.empty((len(paths), dataset.n, *width))
    for chunk in score_chunks(scorer, chunks_of(dataset), dataset.path):
        decisions[:, chunk.start : chunk.stop] = chunk.decisions
        progress("evaluating test rows", chunk.stop, dataset.n)
    codes = dataset.labels()
    majority = majority_of(codes, first.classes)
    rows = []
    latest = max(fact["iteration"] for fact in facts)
    for values, fact, threshold in zip(decisions, facts, thresholds, strict=True):
        if len(first.classes) == 2:
            zero = scores_of(codes, values)
            scores = scores_of(codes, values, threshold) if threshold else zero
            at_zero = zero if threshold else None
            confusion = Confusion(first.classes, confusion_of(codes, values, threshold))
            shown = Row(**asdict(scores), **fact, majority=majority, confusion=confusion)
            curves = curves_of(codes, values) if fact["iteration"] == latest else None
            rows.append(replace(shown, threshold=threshold, at_zero=at_zero, curves=curves))
        else:
            scores, counts = scores_of_classes(codes, values)
            confusion = Confusion(first.classes, counts)
            rows.append(Row(**asdict(scores), **fact, confusion=confusion, majority=majority))
    places = places_of_codes(codes, first.classes)
    return [
        row
        if how is None
        else replace(row, reliability=reliability_of(how.probabilities(f), places))
        for row, how, f in zip(rows, calibrations, decisions, strict=True)
    ]


def majority_in(confusion: np.ndarray, classes: Classes) -> Majority:
    """The largest class among the true ones of a confusion matrix."""
    counts = confusion.sum(axis=1)
    largest = int(counts.argmax())
    return Majority(classes[largest], float(counts[largest] / counts.sum()))


def final_scores(model: Model, test: Spec) -> dict[str, Any]:
    """The scores of a model on a test set (as for `open_dataset`), for summary.json.

    Without AUC for more than two classes, since it needs all decision values at once; see
    `evaluate`.
    """
    with open_test_set(test, model) as dataset:
        count = len(model.classes)
        codes = dataset.labels()
        values = np.empty(dataset.n if count == 2 else 0)
        confusion = np.zeros((count, count), np.int64)
        for chunk in score_chunks(Scorer([model]), chunks_of(dataset), dataset.path):
            decision = chunk.decisions[0]
            if count == 2:
                values[chunk.start : chunk.stop] = decision
            else:
                pairs = codes[chunk.start : chunk.stop].astype(np.int64) * count
                pairs += model.places_of(decision)
                confusion += np.bincount(pairs, minlength=count * count).reshape(count, count)
    majority = majority_of(codes, model.classes)
    scores = (
        scores_of(codes, values, model.threshold)
        if count == 2
        else scores_from_confusion(confusion)
    )
    return {
        "accuracy": scores.accuracy,
        "balanced_accuracy": scores.balanced_accuracy,
        **({"auc": None if np.isnan(scores.auc) else scores.auc} if count == 2 else {}),
        "majority": majority._asdict(),
    }


def _check_same_training(path: Path, model: Model, first: Model) -> None:
    # Support vectors are shared by their row in the training set, which must be the same.
    for what in ("kernel", "classes", "scaling", "n_features"):
        if getattr(model, what) != getattr(first, what):
            raise UserError(
                f"{path}: its {what} is not that of the other snapshots; is it of this run?"
            )
    if model.about.get("fingerprint") != first.about.get("fingerprint"):
        raise UserError(
            f"{path}: was trained on other data than the other snapshots; is it of this run?"
        )


def _iteration(path: Path, model: Model) -> int:
    value = model.about.get("iteration")
    if not isinstance(value, int):
        raise UserError(f"{path}: does not record its iteration; is it the snapshot of a run?")
    return value


def write_evaluation(path: Path, rows: Sequence[Row]) -> None:
    """Write evaluation.csv."""
    fitted = any(row.threshold for row in rows)
    columns = (*COLUMNS, *COLUMNS_OF_THRESHOLDS) if fitted else COLUMNS
    write_csv(path, [columns, *([row.cells()[name] for name in columns] for row in rows)])


def write_reliability(path: Path, found: Reliability) -> None:
    """Write calibration.json."""
    write_text(path, json.dumps(asdict(found), indent=2) + "\n")


def write_confusion(path: Path, confusion: Confusion) -> None:
    """Write confusion.csv: a line per true class, a column per predicted class."""
    rows = zip(confusion.classes, confusion.counts.tolist(), strict=True)
    write_csv(path, [["class", *confusion.classes], *([label, *counts] for label, counts in rows)])
