"""Every option a user can set, checked on the way in; `file` reads them from YAML."""

from bigsvm.config.prepare_options import PrepareOptions
from bigsvm.config.quantities import Duration, Size
from bigsvm.config.sections import (
    EXACT_UP_TO,
    HOT_SET,
    TOLERANCE,
    ArraysConfig,
    ClusterConfig,
    Config,
    DataConfig,
    KernelConfig,
    ModelConfig,
    ReweightConfig,
    RunConfig,
    Section,
    SolverConfig,
    StopEarlyConfig,
    check_sigma,
    normalized_C,
)
from bigsvm.config.tune_options import TuneOptions
