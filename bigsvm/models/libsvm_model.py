"""Export to LIBSVM's text format, with a JSON file for what the format cannot express."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bigsvm.core.errors import UserError
from bigsvm.core.labels import Classes, class_codes
from bigsvm.core.scaling import effective_scaling
from bigsvm.files.atomic import atomic_write, write_text
from bigsvm.kernels import Kernel
from bigsvm.models.double_precision import as_computed
from bigsvm.models.model import Model

KERNELS = {"rbf": "rbf", "linear": "linear", "poly": "polynomial"}
_INT_32 = range(-(2**31), 2**31)


def write_libsvm(model: Model, path: Path, overwrite: bool = False) -> Path | None:
    """Write the model in LIBSVM's format, atomically.

    LIBSVM has no scaling, and only integer labels. The support vectors are scaled; if rows must be
    scaled first, or labels are not integers, PATH.json describes how.

    With more than two classes LIBSVM votes over pairs of classes: the decision value of a pair is
    f_i - f_j here, so that the class with the largest f wins all its pairs.

    Returns
    -------
    Path or None
        The JSON file, if one was written.
    """
    if model.kernel["name"] not in KERNELS:
        raise UserError(
            f"LIBSVM has no {model.kernel['name']} kernel ({', '.join(KERNELS)} can be exported); "
            "export to .onnx instead"
        )
    beside = path.with_name(f"{path.name}.json")
    missing = _not_expressible(model)
    if beside.exists() and not overwrite:
        raise UserError(
            f"{beside}: exists, and belongs to an exported model; --overwrite replaces both"
        )
    with atomic_write(path) as temporary:
        with temporary.open("w") as file:
            file.writelines(_lines(model))
        # The JSON file must exist before the model, which would be misused without it; but it must
        # not be left alone if there is no space for the model.
        if missing:
            write_text(beside, json.dumps(missing, indent=2) + "\n")
    if not missing:
        beside.unlink(missing_ok=True)  # written for the model that this one replaces
        return None
    return beside


def integer_labels(classes: Classes) -> tuple[int, ...]:
    """The labels for LIBSVM: the original ones if they are integers, else their codes."""
    whole = tuple(label for label in classes if isinstance(label, int) and label in _INT_32)
    return whole if len(whole) == len(classes) else tuple(class_codes(classes).tolist())


def _not_expressible(model: Model) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    labels = integer_labels(model.classes)
    if labels != model.classes:
        facts["labels"] = {
            str(label): original for label, original in zip(labels, model.classes, strict=True)
        }
    if (scaling := effective_scaling(model.scaling)) is not None:
        clipped = "" if scaling.clip is None else ", clipped to [-clip, clip]"
        facts["rows"] = f"(x - offset) / scale{clipped}, rounded to float32"
        facts["scaling"] = scaling.to_json()
    if model.encoding is not None:
        facts |= {"features": model.encoding.features, "encoding": model.encoding.to_json()}
    return facts


def _lines(model: Model) -> Iterator[str]:
    kernel = as_computed(Kernel(**model.kernel))
    yield f"svm_type c_svc\nkernel_type {KERNELS[kernel.name]}\n"
    if kernel.name == "poly":
        yield f"degree {kernel.degree}\n"
    if kernel.name != "linear":
        yield f"gamma {kernel.gamma:.17g}\n"
    if kernel.name == "poly":
        yield f"coef0 {kernel.coef0:.17g}\n"
    labels, groups = _groups(model)
    count = len(labels)
    yield f"nr_class {count}\ntotal_sv {sum(len(index) for index, _ in groups)}\n"
    yield f"rho {' '.join(f'{value:.17g}' for value in _rho(model))}\n"
    yield f"label {' '.join(map(str, labels))}\n"
    yield f"nr_sv {' '.join(str(len(index)) for index, _ in groups)}\nSV\n"
    for index, coef in groups:
        for j, own in zip(index, coef, strict=True):
            row = model.support_vectors[j]
            values = (f"{k + 1}:{row[k]:.17g} " for k in np.flatnonzero(row))
            yield f"{' '.join(f'{c:.17g}' for c in own)} {''.join(values)}\n"


def _rho(model: Model) -> list[float]:
    """The rho that LIBSVM subtracts from the decision value of each pair."""
    shifts = model.shifts
    if len(shifts) == 1:
        return [model.threshold - shifts[0]]
    pairs = range(len(shifts))
    return [shifts[j] - shifts[i] for i in pairs for j in pairs if i < j]


def _groups(model: Model) -> tuple[tuple[int, ...], list[tuple[np.ndarray, np.ndarray]]]:
    """The labels in LIBSVM's order; for each its support vectors and their coefficients.

    A support vector has a coefficient for each other class, negative in pairs where its class is
    the second. A support vector of several classes is repeated.
    """
    if len(model.classes) == 2:
        # A decision value above rho means the first label, whose support vectors come first.
        below, above = integer_labels(model.classes)
        positive = model.dual_coef > 0
        indices = np.flatnonzero(positive), np.flatnonzero(~positive)
        return (above, below), [(index, model.dual_coef[index, None]) for index in indices]
    groups = []
    for k, coef in enumerate(model.dual_coef):
        index = np.flatnonzero(coef)
        sign_in_pairs = np.array([-1.0] * k + [1.0] * (len(model.classes) - 1 - k))
        groups.append((index, coef[index, None] * sign_in_pairs))
    return integer_labels(model.classes), groups
