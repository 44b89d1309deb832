"""The sections of a config file, validated."""

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    field_validator,
    model_validator,
)

from bigsvm.config.prepare_options import PrepareOptions
from bigsvm.config.quantities import Duration, Size
from bigsvm.config.tune_options import TuneOptions
from bigsvm.core.stop_rule import StopRule
from bigsvm.core.urls import is_url, reject_credentials
from bigsvm.core.yaml_dialect import dump_yaml

# The default of `solver.tolerance` and of BigSVC's `tol`: the gap, as a share of the margin a'Qa.
TOLERANCE = 0.01
# `schedule: auto` is block, except under the paper's stop rule up to this many patterns: small
# experiments then have the paper's iterates.
EXACT_UP_TO = 20_000
# The most patterns in a hot set of the block schedule; more are divided into cells of at most half
# as many, so that the kernel matrix of a cell takes up to 1 GiB.
HOT_SET = 2**15


class Section(BaseModel):
    """A section of the config, without unknown keys or values of the wrong type."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _plain(cls, value: Any) -> Any:
        if isinstance(value, str) and "\0" in value:
            raise ValueError("a zero byte is not allowed here")
        if isinstance(value, bool):  # pydantic would accept `true` as the number 1
            raise ValueError("true and false are not allowed here")
        return value


class ArraysConfig(Section):
    """The user's own arrays: the path of their store, and their names."""

    path: str
    x: str = "X"
    y: str = "y"
    positive: str | int | float | None = None


class DataConfig(Section):
    """The data to train on, to validate snapshots with, and to test on.

    Attributes
    ----------
    validation_fraction : float or None
        This share of the training rows of each class, chosen by `solver.seed`, is held out for
        validation.
    """

    source: str | None = None
    train: str | ArraysConfig | None = None
    test: str | ArraysConfig | None = None
    validation: str | ArraysConfig | None = None
    validation_fraction: float | None = Field(default=None, gt=0, lt=1)
    prepare: PrepareOptions = PrepareOptions()

    @model_validator(mode="after")
    def _something(self) -> "DataConfig":
        if self.source is None and self.train is None:
            raise ValueError("give `source` (a named data set or a file) or `train` (a store)")
        if self.source is None and self.prepare != PrepareOptions():
            raise ValueError("`prepare` applies to a `source`; a store has been prepared already")
        if self.source is not None and isinstance(self.train, ArraysConfig):
            raise ValueError("with `source`, `train` is the path of the store to create")
        if self.source is not None and isinstance(self.train, str) and is_url(self.train):
            raise ValueError(
                "with `source`, the store is created on this machine: `train` is a path"
            )
        if self.validation is not None and self.validation_fraction is not None:
            raise ValueError("give `validation` (a store) or `validation_fraction`, not both")
        for place in (self.train, self.test, self.validation):
            reject_credentials(place.path if isinstance(place, ArraysConfig) else place or "")
        return self


_PARAMETERS = {
    "rbf": ("sigma", "gamma"),
    "laplacian": ("sigma", "gamma"),
    "linear": (),
    "poly": ("gamma", "coef0", "degree"),
}


class KernelConfig(Section):
    """The kernel and its parameters."""

    name: Literal["rbf", "linear", "poly", "laplacian"] = "rbf"
    sigma: float | None = Field(default=None, gt=0)
    gamma: Annotated[float, Field(gt=0)] | Literal["scale", "auto"] | None = None
    coef0: float = 0.0
    degree: int = Field(default=3, ge=1, le=20)

    @model_validator(mode="after")
    def _width(self) -> "KernelConfig":
        if self.sigma is not None and self.gamma is not None:
            raise ValueError("give sigma or gamma, not both")
        if self.name in ("rbf", "laplacian") and self.sigma is None and self.gamma is None:
            raise ValueError(f"the {self.name} kernel needs sigma or gamma")
        for key in ("sigma", "gamma", "coef0", "degree"):
            changed = getattr(self, key) != type(self).model_fields[key].default
            if changed and key not in _PARAMETERS[self.name]:
                raise ValueError(f"the {self.name} kernel has no {key}; remove it")
        if self.sigma is not None:
            check_sigma(self.name, self.sigma)
        elif not isinstance(self.gamma, str) and not _fits_float32(self.rate):
            raise ValueError(_too_far("gamma", self.rate))
        return self

    @property
    def rate(self) -> float:
        """gamma, given directly or by sigma; undefined while gamma depends on the data."""
        assert not isinstance(self.gamma, str)
        if self.sigma is None:
            return 1.0 if self.gamma is None else self.gamma
        return _rate_of(self.name, self.sigma)


def _rate_of(name: str, sigma: float) -> float:
    return 1 / sigma if name == "laplacian" else 1 / (2 * sigma**2)


def _fits_float32(rate: float) -> bool:
    """Whether gamma is usable; otherwise all kernel values would be 0, 1 or nan."""
    return 1e-37 <= rate <= 1e37


def check_sigma(name: str, sigma: float) -> None:
    """Raise a ValueError for a sigma whose gamma does not fit into float32."""
    try:
        fits = _fits_float32(_rate_of(name, sigma))
    except (ZeroDivisionError, OverflowError):
        fits = False
    if not fits:
        raise ValueError(_too_far("sigma", sigma))


def _too_far(key: str, value: float) -> str:
    return f"{key} = {value:g} is too far from 1 to compute with; scale the data"


def normalized_C(C: float, rows: int, features: int) -> float:
    """The plain C for a normalized one, C d / n, which makes C = 1 suit data of any size."""
    return C * features / rows


class ReweightConfig(Section):
    """How a re-weighted SVM turns coefficients into weights; see `bigsvm.solvers.reweight`."""

    function: Literal["identity", "sqrt", "log", "tanh"] = "sqrt"
    floor: float = Field(default=0.1, ge=0)
    ceiling: float = Field(default=1.0, gt=0)

    @model_validator(mode="after")
    def _in_order(self) -> "ReweightConfig":
        if self.floor >= self.ceiling:
            raise ValueError("the floor must be below the ceiling")
        return self


class ModelConfig(Section):
    """The model to train, as opposed to how it is computed.

    Attributes
    ----------
    weights, sample_weight : str or None
        An array in the store, or a file (.npy, or .txt with one number per line): the margin
        required of each pattern (`wsvm`, and the first round of `rwsvm`), and the factor of its C.
    class_weight : "balanced", or label -> factor of C
    intercept : float
        A constant added to the kernel; 0 for a decision function without intercept.
    threshold : {"zero", "balanced", "accuracy"}
        For two classes: the decision value from which on rows belong to the second class. 0, or
        fitted at every snapshot, to the balanced accuracy or the accuracy on the training rows.
    rounds, reweight
        For `rwsvm`.
    """

    algorithm: Literal["fw", "mfw", "wsvm", "rwsvm"] = "mfw"
    C: float = Field(default=1.0, gt=0)
    C_scale: Literal["plain", "normalized"] = "plain"
    kernel: KernelConfig
    intercept: float = Field(default=0.0, ge=0)
    threshold: Literal["zero", "balanced", "accuracy"] = "zero"
    weights: str | None = None
    sample_weight: str | None = None
    class_weight: Literal["balanced"] | dict[str, Annotated[float, Field(ge=0)]] | None = None
    rounds: int = Field(default=2, ge=1)
    reweight: ReweightConfig = ReweightConfig()

    @model_validator(mode="after")
    def _weights_where_they_count(self) -> "ModelConfig":
        if self.weights is None and self.algorithm == "wsvm":
            raise ValueError("the algorithm wsvm needs `weights`: an array in the store, or a file")
        if self.weights is not None and self.algorithm not in ("wsvm", "rwsvm"):
            raise ValueError(
                f"the algorithm {self.algorithm} takes no `weights`; use wsvm, or sample_weight"
            )
        for key in ("rounds", "reweight"):
            changed = getattr(self, key) != type(self).model_fields[key].default
            if changed and self.algorithm != "rwsvm":
                raise ValueError(f"the algorithm {self.algorithm} takes no `{key}`; use rwsvm")
        return self

    def plain_C(self, rows: int, features: int) -> float:
        """The C of the formulas."""
        return normalized_C(self.C, rows, features) if self.C_scale == "normalized" else self.C


class SolverConfig(Section):
    """How the model is computed, and for how long.

    Attributes
    ----------
    tolerance : float or None
        Converged when the gap is at most this fraction of the margin; None if absolute_tolerance
        is given.
    absolute_tolerance : float or None
        The paper's rule instead: converged when the gap is at most this.
    """

    schedule: Literal["auto", "exact", "block"] = "auto"
    tolerance: float | None = Field(default=TOLERANCE, gt=0, lt=1)
    absolute_tolerance: float | None = Field(default=None, gt=0)
    max_iterations: int = Field(default=1_000_000, ge=1)
    time_limit: Duration | None = Field(default=None, gt=0)
    initial: int | Literal["random"] = 0
    hot_set: int = Field(default=HOT_SET, ge=1)
    memory_limit: Size = Field(default=2 * 2**30, gt=0)
    threads: int | None = Field(default=None, ge=1)
    seed: int = Field(default=0, ge=0)

    @model_validator(mode="before")
    @classmethod
    def _one_stop_rule(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        relative = given.get("tolerance", TOLERANCE)
        if given.get("absolute_tolerance") is None:
            if relative is None:
                raise ValueError("give tolerance or absolute_tolerance")
            return given
        if given.get("tolerance") is not None:
            raise ValueError(
                "give tolerance (relative to the margin) or absolute_tolerance, not both; null "
                "unsets one"
            )
        # The config.yaml of a run has every key, and must be valid input again.
        return given | {"tolerance": None}

    @property
    def stop_rule(self) -> StopRule:
        """The stop rule of these tolerances."""
        if self.absolute_tolerance is not None:
            return StopRule(absolute=self.absolute_tolerance)
        assert self.tolerance is not None
        return StopRule(relative=self.tolerance)


class StopEarlyConfig(Section):
    """Stop when the best score on the validation rows is `patience` snapshots old."""

    metric: Literal["auc", "accuracy", "balanced_accuracy", "f1"] = "auc"
    patience: int = Field(default=5, ge=1)


class RunConfig(Section):
    """The run directory, how often the run is saved, and whether it may stop early."""

    dir: str | None = None
    snapshot_every: int = Field(default=5000, ge=1)
    checkpoint_every: int | None = Field(default=None, ge=1)
    checkpoint_seconds: Duration = Field(default=60.0, gt=0)
    keep_checkpoints: int = Field(default=2, ge=1)
    stop_early: StopEarlyConfig | None = None
    log_to: list[Literal["tensorboard", "mlflow"]] = []


class ClusterConfig(Section):
    """Where to compute: in this process, or on a Dask cluster.

    Attributes
    ----------
    kind : {"none", "local", "address", "scheduler_file"}
        This process; workers started on this machine; an existing cluster.
    workers, threads_per_worker : int or None
        For a local cluster (defaults: one worker per core, with 1 thread). For another one,
        `workers` is the number to wait for at the start (default 1).
    address, scheduler_file : str or None
        The scheduler's address, such as tcp://10.0.0.1:8786, or the file it wrote.
    wait_limit : float
        Seconds to wait for workers when there are none, before the run is saved and exits.
    tls_ca, tls_cert, tls_key : str or None
        PEM files: all traffic is encrypted, and only holders of a certificate can connect.
    """

    kind: Literal["none", "local", "address", "scheduler_file"] = "none"
    workers: int | None = Field(default=None, ge=1)
    threads_per_worker: int | None = Field(default=None, ge=1)
    address: str | None = None
    scheduler_file: str | None = None
    wait_limit: Duration = Field(default=600.0, ge=0)
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    _named_in_file: bool = PrivateAttr(default=False)

    @property
    def named_in_file(self) -> bool:
        """Whether the scheduler is named by the config file alone; not a key of the file."""
        return self._named_in_file

    def mark_named_in_file(self) -> None:
        """Record that the scheduler is named by the config file alone."""
        self._named_in_file = True

    @model_validator(mode="after")
    def _complete(self) -> "ClusterConfig":
        if self.kind in ("address", "scheduler_file") and not getattr(self, self.kind):
            raise ValueError(f"kind {self.kind} needs the key {self.kind!r}")
        files = (self.tls_ca, self.tls_cert, self.tls_key)
        if any(files) and not all(files):
            raise ValueError("TLS needs all of tls_ca, tls_cert and tls_key")
        if all(files) and self.address and not self.address.startswith("tls://"):
            raise ValueError("with TLS the address must begin with tls://")
        return self


class Config(Section):
    """A complete config."""

    data: DataConfig
    model: ModelConfig
    solver: SolverConfig = SolverConfig()
    run: RunConfig = RunConfig()
    cluster: ClusterConfig = ClusterConfig()
    tune: TuneOptions | None = None

    @model_validator(mode="after")
    def _validation(self) -> "Config":
        rows = (self.data.validation, self.data.validation_fraction)
        if self.run.stop_early is not None and rows == (None, None):
            raise ValueError(
                "run.stop_early needs rows to judge by: data.validation or data.validation_fraction"
            )
        return self

    @model_validator(mode="after")
    def _widths(self) -> "Config":
        if self.tune is not None and self.model.kernel.name in ("rbf", "laplacian"):
            for sigma in self.tune.sigma or []:
                try:
                    check_sigma(self.model.kernel.name, sigma)
                except ValueError as mistake:
                    raise ValueError(f"tune.{mistake}") from mistake
        return self

    def to_yaml(self) -> str:
        """The config as YAML, including defaults; loading it gives the same config."""
        values = self.model_dump(mode="json", exclude={"tune"} if self.tune is None else None)
        return dump_yaml(values)
