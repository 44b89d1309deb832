"""The facts about a model file."""

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from bigsvm.core.scaling import Scaling
from bigsvm.models.model import Model, load_model
from bigsvm.tables.encoding import Encoding


def model_facts(path: Path) -> dict[str, Any]:
    """The facts, ready for JSON; None for what the file does not record."""
    model = load_model(path)
    about = dict(model.about)
    recorded = {
        key: about.pop(key, None)
        for key in (
            "algorithm",
            "C",
            "iteration",
            "relative_gap",
            "margin",
            "n_working",
            "n_train",
            "source",
            "fingerprint",
        )
    }
    names = about.pop("feature_names", None)
    label, _ = about.pop("label_column", None), about.pop("encoding", None)
    status, relative_gap = _ended(path, recorded["iteration"])
    return {
        "model": str(path),
        "bytes": path.stat().st_size,
        "algorithm": recorded["algorithm"],
        "C": recorded["C"],
        "kernel": kernel_facts(model.kernel),
        "intercept": _intercept(model),
        "margin": recorded["margin"],
        **({"threshold": model.threshold} if model.threshold else {}),
        **_calibration_facts(model),
        **_class_facts(model),
        "features": model.n_features,
        "feature_names": names,
        **({} if label is None else {"label_column": label}),
        **encoding_facts(model.encoding),
        "scaling": scaling_facts(model.scaling),
        "training": {
            "status": status,
            "iteration": recorded["iteration"],
            "relative_gap": relative_gap
            if recorded["relative_gap"] is None
            else recorded["relative_gap"],
            "working": recorded["n_working"],
            "rows": recorded["n_train"],
        },
        "source": recorded["source"],
        "fingerprint": recorded["fingerprint"],
        "besides": about or None,
    }


def encoding_facts(encoding: Encoding | None) -> dict[str, Any]:
    """How the columns of a table become features."""
    if encoding is None:
        return {}
    columns = [str(column) for column in encoding.columns]
    return {"columns": columns, "missing": encoding.missing, "unseen": encoding.unseen}


def _intercept(model: Model) -> Any:
    """The intercept, or one per class for more than two."""
    shifts = model.shifts.tolist()
    if len(shifts) == 1 or not any(shifts):
        return shifts[0]
    return dict(zip(map(str, model.classes), shifts, strict=True))


def _calibration_facts(model: Model) -> dict[str, Any]:
    if model.calibration is None:
        return {}
    return {"calibration": {"method": model.calibration.method, **model.calibration.about}}


def _class_facts(model: Model) -> dict[str, Any]:
    """The classes, and the number of support vectors of each."""
    positive = (model.dual_coef > 0).sum(axis=-1).tolist()
    names = [str(label) for label in model.classes]
    if len(names) == 2:
        bound = f"{model.threshold:g}"
        classes: Any = {f"f < {bound}": model.classes[0], f"f >= {bound}": model.classes[1]}
        return {
            "classes": classes,
            "support_vectors": model.n_support,
            "support_by_class": dict(
                zip(names, (model.n_support - positive, positive), strict=True)
            ),
        }
    in_all = np.count_nonzero(model.dual_coef, axis=1).tolist()
    return {
        "classes": list(model.classes),
        "decision": "the class with the largest f, each against the rest",
        "support_vectors": model.n_support,
        "support_by_decision": dict(zip(names, in_all, strict=True)),
        "own_class_in_it": dict(zip(names, positive, strict=True)),
    }


def kernel_facts(kernel: Mapping[str, Any]) -> dict[str, Any]:
    """The kernel's name and the parameters it uses; gamma also as sigma."""
    name = kernel["name"]
    facts: dict[str, Any] = {"name": name}
    if name == "poly":
        facts |= {key: kernel[key] for key in ("degree", "gamma", "coef0") if key in kernel}
    elif name != "linear" and "gamma" in kernel:
        gamma = facts["gamma"] = kernel["gamma"]
        if isinstance(gamma, int | float) and gamma > 0:
            facts["sigma"] = 1 / gamma if name == "laplacian" else math.sqrt(1 / (2 * gamma))
    return facts


def scaling_facts(scaling: Scaling | None) -> dict[str, Any] | None:
    """The parameters of a scaling, or None."""
    if scaling is None:
        return None
    facts: dict[str, Any] = scaling.to_json()
    return {"kind": facts.pop("kind"), "clip": facts.pop("clip"), **facts}


def _ended(path: Path, iteration: Any) -> tuple[str | None, float | None]:
    """The status and the relative gap of the training, if this is its final model.

    Both None if the file is not in a run directory.
    """
    for folder in (path.parent, path.parent.parent):
        with suppress(OSError, ValueError, AttributeError):
            summary = json.loads((folder / "summary.json").read_text())
            if path.name == "model.safetensors" or path.parent.name == "snapshots":
                ended_here = summary.get("iterations") == iteration
                if not ended_here:
                    return "a model on the way", None
                return str(summary["status"]), summary.get("true_relative_gap")
    return None, None
