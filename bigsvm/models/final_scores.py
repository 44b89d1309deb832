"""What a model is worth on its test set, beside what always answering the same would be."""

from typing import Any, NamedTuple

import numpy as np

from bigsvm.core.labels import Classes, class_codes
from bigsvm.models.model import Model
from bigsvm.models.scores import scores_from_confusion, scores_of
from bigsvm.models.scoring import Scorer, Spec, decided, open_test_set, pieces_of

UNBALANCED = 0.65  # the share of one class from which accuracy alone says little


class Majority(NamedTuple):
    """The largest class of a test set: what a model without any use would always answer."""

    label: Any
    share: float

    @property
    def is_large(self) -> bool:
        """Whether accuracy alone says little here."""
        return self.share >= UNBALANCED

    def warning(self, accuracy: float) -> str | None:
        """What to say of a model that gets no more right than it would without any model."""
        if accuracy > self.share:
            return None
        return (
            f"no better than always answering {self.label!r}, which is right in "
            f"{100 * self.share:.2f} %; try model.threshold: balanced, or class_weight: balanced"
        )


def majority_of(codes: np.ndarray, classes: Classes) -> Majority:
    """The largest class among the codes of labels."""
    known = class_codes(classes)
    counts = np.bincount(np.searchsorted(known, codes), minlength=len(known))
    largest = int(counts.argmax())
    return Majority(classes[largest], float(counts[largest] / len(codes)))


def final_scores(model: Model, test: Spec) -> dict[str, Any]:
    """The scores of a model on a test set (as for `open_dataset`), as summary.json has them.

    Of more than two classes there is no AUC: it would take the decision values of all of them at
    once. `evaluate` has it.
    """
    with open_test_set(test, model) as dataset:
        count = len(model.classes)
        codes = dataset.labels()
        values = np.empty(dataset.n if count == 2 else 0)
        confusion = np.zeros((count, count), np.int64)
        for piece in decided(Scorer([model]), pieces_of(dataset), dataset.path):
            decision = piece.decisions[0]
            if count == 2:
                values[piece.start : piece.stop] = decision
            else:
                pairs = codes[piece.start : piece.stop].astype(np.int64) * count
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
