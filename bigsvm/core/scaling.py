"""Feature scaling, fitted in one streaming pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigsvm.core.errors import UserError

KINDS = ("standard", "minmax", "none")


@dataclass(frozen=True, eq=False)
class Scaling:
    """x -> (x - offset) / scale, then clipped to [-clip, clip].

    Attributes
    ----------
    kind : {"standard", "minmax", "none"}
        What offset and scale are: mean and standard deviation; midpoint and half-width of the
        range, so that the training rows fill [-1, 1]; or 0 and 1.
    offset, scale : (d,) float64
        A constant feature has scale 1.
    clip : float or None
    """

    kind: str
    offset: np.ndarray
    scale: np.ndarray
    clip: float | None = None

    def apply(self, X: np.ndarray) -> np.ndarray:
        """Return the scaled rows as float32; the arithmetic is in float64."""
        scaled = np.subtract(X, self.offset, dtype=np.float64)
        scaled /= self.scale
        if self.clip is not None:
            np.clip(scaled, -self.clip, self.clip, out=scaled)
        with np.errstate(over="ignore"):  # callers check for infinities, with a better message
            return scaled.astype(np.float32)

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready form; JSON keeps every bit of a float."""
        return {
            "kind": self.kind,
            "offset": self.offset.tolist(),
            "scale": self.scale.tolist(),
            "clip": self.clip,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Scaling:
        """The scaling that `to_json` was called on."""
        return cls(
            kind=data["kind"],
            offset=np.array(data["offset"], dtype=np.float64),
            scale=np.array(data["scale"], dtype=np.float64),
            clip=data["clip"],
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Scaling):
            return NotImplemented
        return self.to_json() == other.to_json()


class ScalingFit:
    """Fits a Scaling to batches of training rows.

    Averages distances from the first row, and merges the means and variances of batches by the
    formula of Chan, Golub and LeVeque: neither cancels if a mean is large compared to the spread.
    The same batches in the same order give the same bits.
    """

    def __init__(self, d: int) -> None:
        self.count = 0
        self.origin = np.zeros(d)
        self.mean = np.zeros(d)  # relative to the origin
        self.squares = np.zeros(d)  # sum of squared distances from the mean
        self.low = np.full(d, np.inf)
        self.high = np.full(d, -np.inf)

    def add(self, X: np.ndarray) -> None:
        """Add a batch of rows (m, d)."""
        if len(X) == 0:
            return
        if self.count == 0:
            self.origin[:] = X[0]
        np.minimum(self.low, X.min(axis=0), out=self.low)
        np.maximum(self.high, X.max(axis=0), out=self.high)
        with np.errstate(over="ignore", invalid="ignore"):  # `finish` reports it
            centred = np.subtract(X, self.origin, dtype=np.float64)
            mean = centred.mean(axis=0)
            centred -= mean
            squares = np.square(centred, out=centred).sum(axis=0)
            merged = self.count + len(X)
            shift = mean - self.mean
            self.squares += squares + shift**2 * (self.count * len(X) / merged)
            self.mean += shift * (len(X) / merged)
        self.count = merged

    def finish(self, kind: str, clip: float | None = None) -> Scaling:
        """The scaling for the rows added so far."""
        offset, scale = np.zeros_like(self.mean), np.ones_like(self.mean)
        if kind not in KINDS:
            raise UserError(f"scaling {kind!r} is not known; choose one of {', '.join(KINDS)}")
        if kind == "standard":
            offset, scale = self.origin + self.mean, np.sqrt(self.squares / self.count)
        elif kind == "minmax":
            offset, scale = self.low / 2 + self.high / 2, self.high / 2 - self.low / 2
        # The variance of a constant feature may not round to 0, but its range is exact.
        constant = (self.low == self.high) | (scale == 0)
        if kind != "none":
            offset[constant] = self.low[constant]
        scale[constant] = 1.0
        wrong = np.flatnonzero(~(np.isfinite(offset) & np.isfinite(scale)))
        if wrong.size:
            raise UserError(
                f"feature {wrong[0] + 1} has values up to {self.high[wrong[0]]:g}, too large for "
                f"{kind} scaling; divide this feature by a constant first"
            )
        return Scaling(kind, offset, scale, clip)


def effective_scaling(scaling: Scaling | None) -> Scaling | None:
    """The scaling, or None if it changes nothing (`prepare --scaling none`)."""
    if scaling is None or scaling.clip is not None:
        return scaling
    return scaling if scaling.offset.any() or (scaling.scale != 1).any() else None
