"""Scores every snapshot on validation rows while a run is trained; keeps the best, may stop early.

A snapshot is scored by itself: it lies between two passes over the data, so no pass computes the
decision values of its model. Decisions depend only on validation.jsonl and the snapshots, so that a
resumed run decides as an uninterrupted one does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np

from bigsvm.config import Config, StopEarlyConfig
from bigsvm.core.errors import UserError
from bigsvm.core.labels import Classes, class_codes
from bigsvm.core.messages import METRIC_NAMES
from bigsvm.files.atomic import atomic_write, open_no_symlink
from bigsvm.models.model import Model, load_model
from bigsvm.models.scores import Scores, scores_of, scores_of_classes
from bigsvm.models.scoring import LabelledChunk, Scorer, chunks_of, open_test_set, score_chunks
from bigsvm.preparation.data_sets import dataset_spec
from bigsvm.stores.fingerprint import verified_fingerprint
from bigsvm.stores.store import Dataset
from bigsvm.training.run_dir import RunDir

CHUNK_ROWS = 16_384
METRIC = "auc"  # of the best model, if run.stop_early names no other


@dataclass(frozen=True)
class ValidationRows:
    """Labelled rows that take no part in training, scaled as the training rows are.

    Attributes
    ----------
    name : str
        Their origin, for messages.
    identity : str
        Differs for other rows.
    codes : (n,) integers
        Of their labels.
    chunks : callable
        Starts reading them.
    held_out : (n,) int64 or None
        The training rows that they are, ascending, if they are held out.
    """

    name: str
    identity: str
    codes: np.ndarray
    chunks: Callable[[], Iterator[LabelledChunk]]
    held_out: np.ndarray | None = None

    def scores(self, model: Model) -> Scores:
        """The scores of a model."""
        decisions: Any = None
        for chunk in score_chunks(Scorer([model]), self.chunks(), self.name):
            found = chunk.decisions[0]
            if decisions is None:
                decisions = np.empty((len(self.codes), *found.shape[1:]))
            decisions[chunk.start : chunk.stop] = found
        if decisions.ndim == 1:
            return scores_of(self.codes, decisions, model.threshold)
        return scores_of_classes(self.codes, decisions)[0]


@contextmanager
def open_validation(config: Config, dataset: Dataset) -> Iterator[ValidationRows | None]:
    """The validation rows of a run on `dataset`, as the config asks for; None if it does not."""
    data = config.data
    if data.validation_fraction is not None:
        seed = config.solver.seed
        index = held_out_rows(dataset.labels(), dataset.classes, data.validation_fraction, seed)
        size = 4 * len(index) * dataset.d
        if size > config.solver.memory_limit // 4:
            raise UserError(
                f"data.validation_fraction = {data.validation_fraction:g}: {len(index):,} rows "
                f"take {size / 2**20:.0f} MiB, more than a quarter of solver.memory_limit; hold "
                "out fewer, or prepare a store of them for data.validation"
            )
        identity = f"{data.validation_fraction!r} of the training rows, seed {seed}"
        rows, codes = dataset.gather(index), dataset.labels()[index]
        yield ValidationRows(
            f"{dataset.path}, held out", identity, codes, lambda: _in_chunks(rows, codes), index
        )
    elif data.validation is not None:
        with open_test_set(dataset_spec(data.validation), dataset) as found:
            codes = found.labels()
            for label, code in zip(dataset.classes, class_codes(dataset.classes), strict=True):
                if not (codes == code).any():
                    raise UserError(f"data.validation: {found.path} has no row of class {label!r}")
            identity = verified_fingerprint(found)[:16]
            yield ValidationRows(found.path, identity, codes, lambda: chunks_of(found))
    else:
        yield None


def held_out_rows(codes: np.ndarray, classes: Classes, fraction: float, seed: int) -> np.ndarray:
    """Rows chosen by a seed, ascending: this fraction of each class."""
    random = np.random.default_rng(seed)
    chosen = []
    for label, code in zip(classes, class_codes(classes), strict=True):
        of_class = np.flatnonzero(codes == code)
        count = round(fraction * len(of_class))
        if not 0 < count < len(of_class):
            raise UserError(
                f"validation_fraction = {fraction:g}: would hold out {count} of the "
                f"{len(of_class)} rows of class {label!r}; every class needs rows on both sides"
            )
        chosen.append(random.permutation(of_class)[:count])
    return np.sort(np.concatenate(chosen))


def _in_chunks(rows: np.ndarray, codes: np.ndarray) -> Iterator[LabelledChunk]:
    for start in range(0, len(rows), CHUNK_ROWS):
        some = slice(start, start + CHUNK_ROWS)
        yield LabelledChunk(start, rows[some], codes[some])


class Validation:
    """The validation scores of a run so far: validation.jsonl and best.safetensors.

    Parameters
    ----------
    rows : ValidationRows
    run_dir : RunDir
    stop_early : StopEarlyConfig or None
    log : callable
        Shows a line.
    """

    def __init__(
        self,
        rows: ValidationRows,
        run_dir: RunDir,
        stop_early: StopEarlyConfig | None,
        log: Callable[[str], None],
    ) -> None:
        self._rows, self._run_dir, self._log = rows, run_dir, log
        self._patience = None if stop_early is None else stop_early.patience
        self.metric = METRIC if stop_early is None else stop_early.metric
        self._lines: list[dict[str, Any]] = self._read()

    @property
    def best(self) -> dict[str, Any] | None:
        """The line with the highest score, the earliest of equal ones."""
        return max(self._lines, key=lambda line: float(line[self.metric]), default=None)

    @property
    def stops(self) -> bool:
        """Whether the best snapshot is `patience` snapshots old."""
        snapshots = [line for line in self._lines if not line["final"]]
        if self._patience is None or not snapshots:
            return False
        values = [line[self.metric] for line in snapshots]
        return len(values) - 1 - values.index(max(values)) >= self._patience

    def resume(self, iteration: int) -> None:
        """Keep the scores of snapshots up to `iteration`, where the run resumes; score the others.

        The score of a final model is dropped: an uninterrupted run has none at this point.
        """
        known = {
            line["iteration"]: line
            for line in self._lines
            if line["iteration"] <= iteration and not line["final"]
        }
        for path in sorted(self._run_dir.snapshots.glob("model-*.safetensors")):
            number = path.stem.removeprefix("model-")
            if number.isdecimal() and int(number) <= iteration and int(number) not in known:
                known[int(number)] = self._score(path, None)
        self._lines = [known[number] for number in sorted(known)]
        with atomic_write(self._run_dir.validation) as temporary:
            temporary.write_text("".join(json.dumps(line) + "\n" for line in self._lines))
        if self.best is None:
            self._run_dir.best.unlink(missing_ok=True)
        else:
            self._keep(self._run_dir.snapshot_path(self.best["iteration"]))

    def add(self, path: Path, seconds: float, final: bool = False) -> None:
        """Score a model that was just written."""
        line = self._score(path, round(seconds, 3), final)
        if final and any(old["iteration"] == line["iteration"] for old in self._lines):
            return  # it is the last snapshot
        self._lines.append(line)
        with open_no_symlink(self._run_dir.validation, "a") as file:
            file.write(json.dumps(line) + "\n")
        is_best = self.best is line
        if is_best:
            self._keep(path)
        shown = [
            f"{METRIC_NAMES[key]} {100 * line[key]:.2f} %" for key in METRIC_NAMES if key != "f1"
        ]
        self._log(
            f"validation at iteration {line['iteration']:,}: {', '.join(shown)}"
            + (", the best so far" if is_best else "")
        )

    def summary(self) -> dict[str, Any]:
        """What summary.json says of it: the scores of the last and of the best model."""
        wanted = ("iteration", *METRIC_NAMES)
        found: dict[str, Any] = {"rows": len(self._rows.codes), "metric": self.metric}
        for name, line in (("last", self._lines[-1]), ("best", self.best)):
            found[name] = {key: line[key] for key in wanted}  # type: ignore[index]
        return found

    def _score(self, path: Path, seconds: float | None, final: bool = False) -> dict[str, Any]:
        model = load_model(path)
        scores = {
            key: None if isnan(v) else v for key, v in asdict(self._rows.scores(model)).items()
        }
        return {
            "iteration": int(model.about["iteration"]),
            "seconds": seconds,
            **scores,
            "n_support": model.n_support,
            "final": final,
            "rows": self._rows.identity,
        }

    def _keep(self, path: Path) -> None:
        with atomic_write(self._run_dir.best) as temporary:
            temporary.write_bytes(path.read_bytes())

    def _read(self) -> list[dict[str, Any]]:
        """The lines of validation.jsonl that are of these rows, and complete."""
        lines = []
        with suppress(OSError), self._run_dir.validation.open(errors="replace") as file:
            for text in file:
                with suppress(ValueError, TypeError, KeyError):  # cut off, or not written by us
                    line = json.loads(text)
                    numbers = [float(line[key]) for key in ("iteration", *METRIC_NAMES)]
                    if line["rows"] == self._rows.identity and np.isfinite(numbers).all():
                        lines.append(line | {"final": bool(line["final"])})
        return lines
