"""Sparse kernel SVMs on data that does not fit in memory."""

from typing import Any

from bigsvm.core.version import __version__ as __version__

__all__ = ["BigSVC", "Model", "load_model"]


def __getattr__(name: str) -> Any:
    """Import on first use, so that commands start quickly."""
    if name == "BigSVC":
        from bigsvm.estimator.classifier import BigSVC

        return BigSVC
    if name in __all__:
        from bigsvm.models import model

        return getattr(model, name)
    raise AttributeError(f"module 'bigsvm' has no attribute {name!r}")
