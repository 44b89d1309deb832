"""numba with a fault-tolerant cache of compiled code and parallel loops that survive a fork.

Import `njit` from here rather than from numba. By itself, numba fails if neither the directory of
the package nor the user's cache directory is writable (containers, read-only images, services), or
if the disk is full when a function has been compiled. Here, the worst that a broken cache can cause
is that code is compiled again.

GNU OpenMP, numba's usual threading layer on Linux, terminates a process that was forked from one
with threads as soon as it starts a parallel loop (and `multiprocessing.Pool` then hangs). Such a
process computes the same results in one thread: see `parallel_njit` and `threads_lost`.
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, cached_property, update_wrapper
from pathlib import Path
from types import FunctionType
from typing import Any

import numba
from llvmlite import binding, ir
from numba import config, types
from numba.core import caching, dispatcher
from numba.extending import intrinsic

from bigsvm.core.errors import UserError

__all__ = [
    "available_threads",
    "inner_njit",
    "is_cached",
    "njit",
    "parallel_njit",
    "threads_lost",
    "use_threads",
]

if config.DISABLE_JIT:  # type: ignore[attr-defined]
    raise UserError(
        "NUMBA_DISABLE_JIT is set, but the kernels exist only as compiled code; unset it"
    )

_PACKAGE = Path(__file__).parents[1]
# Packages whose compiled functions may be inlined into those of other files.
_COMPILED = ("kernels", "readers", "solvers")


def njit(*function: Any, **options: Any) -> Any:
    """`numba.njit`, without the wrapper for function pointers, which nothing here needs."""
    untyped: Any = numba.njit  # its type hints lack that option
    return untyped(*function, no_cfunc_wrapper=True, **options)


def inner_njit(*function: Any, **options: Any) -> Any:
    """`njit` for functions called only from compiled code: also without the wrapper for Python.

    The wrapper that unpacks a tuple of ten arrays can take longer to compile than the function.
    """
    return njit(*function, no_cpython_wrapper=True, **options)


# numba has changed which of these classes have a leading underscore.
_LOCATORS = {
    kind.__name__.lstrip("_"): kind for kind in caching.CompileResultCacheImpl._locator_classes
}
_UserCache: Any = _LOCATORS["UserWideCacheLocator"]


class _UserWide(_UserCache):
    """The user's cache directory, if the user has one."""

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> Any:
        # For a user without a home, numba would create a directory `~` in the current one.
        if not Path(cls(py_func, py_file).get_cache_path()).is_absolute():
            return None
        return super().from_function(py_func, py_file)


class _Temporary(_UserCache):
    """The last resort: a private directory in the temporary directory, or no cache at all."""

    def __init__(self, py_func: Any, py_file: str) -> None:
        super().__init__(py_func, py_file)
        folder = _private_directory()
        self._cache_path = folder and str(folder / self.get_suitable_cache_subpath(py_file))

    def get_cache_path(self) -> str:
        return self._cache_path or os.devnull

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> Any:
        # Never None, which would be an error; without a directory, only saving fails.
        return cls(py_func, py_file)


@cache
def _sources() -> tuple:
    """The modification times of all files whose code may be inlined into other files."""
    files = (path for name in _COMPILED for path in (_PACKAGE / name).glob("*.py"))
    return tuple(sorted((path.name, path.stat().st_mtime_ns) for path in files))


class _StampedLocator:
    """A numba cache locator whose source stamp covers every file that may have been inlined."""

    def __init__(self, locator: Any) -> None:
        self._locator = locator

    def __getattr__(self, name: str) -> Any:
        return getattr(self._locator, name)

    def get_source_stamp(self) -> tuple:
        """Alone, numba checks only the file that defines the function."""
        return self._locator.get_source_stamp(), _sources()


class _CacheFiles(caching.CompileResultCacheImpl):
    _locator_classes = [  # noqa: RUF012 - as in numba
        *(_LOCATORS | {"UserWideCacheLocator": _UserWide}).values(),
        _Temporary,
    ]

    @property
    def locator(self) -> Any:
        return _StampedLocator(self._locator)


class _Cache(caching.FunctionCache):
    """numba's cache; a failure to load is a cache miss, a failure to save a warning."""

    _impl_class = _CacheFiles

    def signatures(self) -> Iterable[Any]:
        """The signatures for which there is code that is up to date."""
        with suppress(Exception):  # a torn index
            return list(self._cache_file._load_index())
        return []

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # unpickling a torn file raises errors of many types
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        if self.cache_path == os.devnull:
            return
        try:
            super().save_overload(sig, data)
        except OSError as failure:
            _warn(
                f"warning: compiled code cannot be cached in {self.cache_path} "
                f"({failure.strerror}), so every start compiles again; set NUMBA_CACHE_DIR to "
                "another directory"
            )


def _cache_of(py_func: Any) -> Any:
    ours = py_func.__code__.co_filename.startswith(f"{_PACKAGE}{os.sep}")
    return (_Cache if ours else caching.FunctionCache)(py_func)


# numba offers no other hook to choose the cache class. Functions of other packages keep numba's.
dispatcher.FunctionCache = _cache_of  # type: ignore[attr-defined]


def is_cached(function: Any) -> bool:
    """Whether code of a function of `njit(cache=True)` is in the cache, or there is no cache."""
    return function._cache.cache_path == os.devnull or bool(function._cache.signatures())


@cache
def _private_directory() -> Path | None:
    """A directory private to this user, and the same at the next start."""
    problem = "warning: neither the package nor the user's cache directory is writable, so "
    with suppress(OSError):
        folder = Path(tempfile.gettempdir()) / f"bigsvm-numba-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        # Cached code is executed, so a directory that another user created is not used.
        found = folder.lstat()
        private = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
        if private and found.st_uid == os.getuid():
            _warn(f"{problem}compiled code is cached in {folder}; NUMBA_CACHE_DIR chooses another")
            # Child processes inherit the choice, and do not repeat the warning.
            os.environ["NUMBA_CACHE_DIR"] = str(folder)
            return folder
    _warn(f"{problem}every start compiles again; set NUMBA_CACHE_DIR to a writable directory")
    return None


@cache
def _warn(line: str) -> None:
    with suppress(OSError, ValueError):  # a closed stderr is no reason to stop
        print(line, file=sys.stderr, flush=True)


# Nonzero in a forked process whose parent owned the threads. Compiled code reads the flag by name.
_lost = ctypes.c_uint8(0)
_LOST = "bigsvm_threads_lost"
binding.add_symbol(_LOST, ctypes.addressof(_lost))


def _after_fork() -> None:
    # ValueError: no parallel loop has run yet, so the process starts its own threads
    with suppress(ValueError):
        # The other layers, and OpenMP elsewhere, start new threads after a fork.
        if numba.threading_layer() == "omp" and sys.platform == "linux":
            _lost.value = 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@intrinsic
def threads_lost(typing_context):  # type: ignore[no-untyped-def]
    """Whether compiled code must not run parallel loops, because the process was forked."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        flag = builder.module.globals.get(_LOST)
        if flag is None:
            flag = ir.GlobalVariable(builder.module, ir.IntType(8), _LOST)
        return builder.trunc(builder.load(flag, typ=ir.IntType(8)), ir.IntType(1))

    return types.boolean(), generate


def parallel_njit(**options: Any) -> Callable[[Any], _Parallel]:
    """Like `njit(parallel=True)`, for functions called from Python, but works in forked processes.

    There the same loops run serially. They give the same bits, because no result in this package
    depends on the number of threads.
    """
    return lambda function: _Parallel(function, options)


class _Parallel:
    def __init__(self, function: FunctionType, options: dict[str, Any]) -> None:
        self.threaded = njit(parallel=True, **options)(function)
        self._function = function
        self._options = options
        update_wrapper(self, function)

    @cached_property
    def serial(self) -> Any:
        # A name of its own, because the cache on disk does not distinguish options.
        f, name = self._function, f"{self._function.__name__}_serial"
        twin = FunctionType(f.__code__, f.__globals__, name, f.__defaults__, f.__closure__)
        twin.__qualname__, twin.__module__ = name, f.__module__
        return njit(**self._options)(twin)

    def __call__(self, *arguments: Any) -> Any:
        return (self.serial if _lost.value else self.threaded)(*arguments)


@contextmanager
def use_threads(count: int | None) -> Iterator[None]:
    """Run compiled code with `count` threads inside the block; None changes nothing."""
    if count is None:
        yield
        return
    before = numba.get_num_threads()
    numba.set_num_threads(count)
    try:
        yield
    finally:
        numba.set_num_threads(before)


def available_threads() -> int:
    """The number of threads that numba was started with."""
    return int(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
