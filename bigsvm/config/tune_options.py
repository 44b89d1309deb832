"""The options of `tune`."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

_GRID_KEYS = {"from", "to", "count"}


def _expand_grid(value: Any) -> Any:
    """Expand ``{from: 1e-5, to: 1e5, count: 11}`` to a list, evenly spaced in the logarithm."""
    if not isinstance(value, dict):
        return value
    if set(value) != _GRID_KEYS:
        raise ValueError("a grid is a list, or {from: 1e-5, to: 1e5, count: 11}")
    first, last, count = (value[key] for key in ("from", "to", "count"))
    if not all(isinstance(end, int | float) and 0 < end < float("inf") for end in (first, last)):
        raise ValueError("from and to are numbers above 0")
    if not isinstance(count, int) or not 2 <= count <= 1000:
        raise ValueError("count is a whole number, 2 to 1000")
    ratio = last / first
    # Twelve digits, so that powers of ten come out exact.
    return [float(f"{first * ratio ** (i / (count - 1)):.12g}") for i in range(count)]


Positive = Annotated[float, Field(gt=0)]
LogGrid = Annotated[
    list[Positive], BeforeValidator(_expand_grid), Field(min_length=1, max_length=1000)
]


class TuneOptions(BaseModel):
    """The section `tune` of a config.

    Parameters
    ----------
    C : list of float, or {from, to, count}
        Default: as in the paper, 1e-5 to 1e5 by factors of 10.
    sigma : list of float, or {from, to, count}
        Widths of an rbf or laplacian kernel. Default: 1/16 to 64 by factors of 2 (the paper does
        not state its grid). Other kernels are used as `model.kernel` defines them.
    algorithms : list of {"fw", "mfw"}, optional
        Default: `model.algorithm`.
    folds : int
    subsample : int, optional
        Tune on this many training patterns, drawn in the proportions of the classes. Default: all,
        or as many as `solver.memory_limit` has room for a kernel matrix of.
    seed : int
        Determines the folds and the subsample.
    max_iterations : int
        Limit of each training. With a large C the last digits of the gap may take millions of
        steps, and make no measurable difference in the score of a fold.
    metric : {"accuracy", "balanced_accuracy", "f1", "auc", "average_precision"}
        The score by which points are ranked. F1 and average precision are those of the class +1;
        for more than two classes, they and AUC are means over the classes, each against the rest.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    C: LogGrid = Field(default=[10.0**power for power in range(-5, 6)])
    sigma: LogGrid | None = None
    algorithms: list[Literal["fw", "mfw"]] | None = Field(default=None, min_length=1)
    folds: int = Field(default=10, ge=2, le=1000)
    subsample: int | None = Field(default=None, ge=4)
    seed: int = Field(default=0, ge=0)
    max_iterations: int = Field(default=100_000, ge=1)
    metric: Literal["accuracy", "balanced_accuracy", "f1", "auc", "average_precision"] = "accuracy"

    @field_validator("*", mode="before")
    @classmethod
    def _no_booleans(cls, value: Any) -> Any:
        values = value if isinstance(value, list) else [value]
        if any(isinstance(each, bool) for each in values):
            raise ValueError("true and false are not allowed here")
        return value

    @field_validator("C", "sigma", "algorithms")
    @classmethod
    def _each_once(cls, values: list | None) -> list | None:
        for place, value in enumerate(values or []):
            if value in (values or [])[:place]:
                raise ValueError(f"{value} is given twice")
        return values


SIGMA = [2.0**power for power in range(-4, 7)]
