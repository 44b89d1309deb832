"""The scores of the final model on its test set, and the majority class as a baseline."""

from typing import Any, NamedTuple

import numpy as np

from bigsvm.core.labels import Classes, class_codes
from bigsvm.models.model import Model
from bigsvm.models.scores import scores_from_confusion, scores_of
from bigsvm.models.scoring import Scorer, Spec, chunks_of, open_test_set, score_chunks

UNBALANCED = 0.65  # with such a share of one class, accuracy alone says little
FINDS_BOTH = 0.55  # a balanced accuracy that is more than chance


class Majority(NamedTuple):
    """The largest class of a test set, which a useless model would always predict."""

    label: Any
    share: float

    @property
    def is_large(self) -> bool:
        """Whether accuracy alone says little."""
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
