"""Compiled code is cached on disk where that is possible, and works where it is not.

Import `njit` from here rather than from numba. Left to itself, numba ends the program where neither
the folder of the package nor the user's cache folder can be written (containers, read-only images,
services), and where the disk is full when a function has been compiled. A cache is a convenience:
whatever is wrong with it, the worst that may happen is that code is compiled again.

GNU OpenMP, numba's usual threading layer on Linux, ends a process that was forked from one with
threads as soon as it starts a parallel loop (and `multiprocessing.Pool` then waits for ever). Such
a process computes the same in one thread: see `parallel_njit` and `threads_lost`.
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache, cached_property, update_wrapper
from pathlib import Path
from types import FunctionType
from typing import Any

import numba
from llvmlite import binding, ir
from numba import config, njit, types
from numba.core import caching, dispatcher
from numba.extending import intrinsic

from bigsvm.core.errors import UserError

__all__ = ["njit", "parallel_njit", "threads_lost"]

if config.DISABLE_JIT:  # type: ignore[attr-defined]
    raise UserError(
        "NUMBA_DISABLE_JIT is set, and what computes kernels exists compiled only; unset it"
    )

_PACKAGE = str(Path(__file__).parents[1]) + os.sep


# Which of them are private by name has changed between versions of numba.
_LOCATORS = {
    kind.__name__.lstrip("_"): kind for kind in caching.CompileResultCacheImpl._locator_classes
}
_InUsersCache: Any = _LOCATORS["UserWideCacheLocator"]


class _UserWide(_InUsersCache):
    """The user's cache folder, where there is one."""

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> Any:
        # Of a user without a home, numba would make a folder called `~` in the current one.
        if not Path(cls(py_func, py_file).get_cache_path()).is_absolute():
            return None
        return super().from_function(py_func, py_file)


class _Temporary(_InUsersCache):
    """The last resort: a folder in the temporary directory, or none at all."""

    def __init__(self, py_func: Any, py_file: str) -> None:
        super().__init__(py_func, py_file)
        folder = _temporary_folder()
        self._cache_path = folder and str(folder / self.get_suitable_cache_subpath(py_file))

    def get_cache_path(self) -> str:
        return self._cache_path or os.devnull

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> Any:
        # None would end the program; of a folder that goes away, only the saving fails.
        return cls(py_func, py_file)


class _CacheFiles(caching.CompileResultCacheImpl):
    _locator_classes = [  # noqa: RUF012 - as numba has it
        *(_LOCATORS | {"UserWideCacheLocator": _UserWide}).values(),
        _Temporary,
    ]


class _Cache(caching.FunctionCache):
    """numba's cache of a function, none of whose failures is one of the program."""

    _impl_class = _CacheFiles

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # of a torn file, unpickling raises errors of many kinds
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        if self.cache_path == os.devnull:
            return
        try:
            super().save_overload(sig, data)
        except OSError as failure:
            _say(
                f"warning: compiled code cannot be cached in {self.cache_path} "
                f"({failure.strerror}), so that every start compiles anew; NUMBA_CACHE_DIR names "
                "another folder"
            )


def _cache_of(py_func: Any) -> Any:
    ours = py_func.__code__.co_filename.startswith(_PACKAGE)
    return (_Cache if ours else caching.FunctionCache)(py_func)


# numba has no other place to say what a function is cached by. Functions of others are left alone.
dispatcher.FunctionCache = _cache_of  # type: ignore[attr-defined]


@cache
def _temporary_folder() -> Path | None:
    """A folder that is this user's alone, and the same at the next start."""
    begin = "warning: neither the package nor the user's cache folder can be written, so that "
    with suppress(OSError):
        folder = Path(tempfile.gettempdir()) / f"bigsvm-numba-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        # What is cached is run: a folder that somebody else has made under this name is not used.
        found = folder.lstat()
        private = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
        if private and found.st_uid == os.getuid():
            _say(
                f"{begin}compiled code is cached in {folder}; NUMBA_CACHE_DIR names another folder"
            )
            # Processes started from here need not find that out, and say it, again.
            os.environ["NUMBA_CACHE_DIR"] = str(folder)
            return folder
    _say(f"{begin}every start compiles anew; let NUMBA_CACHE_DIR name a folder to cache code in")
    return None


@cache
def _say(line: str) -> None:
    with suppress(OSError, ValueError):  # nobody reads it any more: no reason to stop
        print(line, file=sys.stderr, flush=True)


# Not 0 in a process whose parent had the threads. Compiled code reads it under this name.
_lost = ctypes.c_uint8(0)
_LOST = "bigsvm_threads_lost"
binding.add_symbol(_LOST, ctypes.addressof(_lost))


def _after_fork() -> None:
    with suppress(ValueError):  # no parallel loop has run yet: the process starts its own threads
        # The other layers, and OpenMP elsewhere, start new threads after a fork.
        if numba.threading_layer() == "omp" and sys.platform == "linux":
            _lost.value = 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@intrinsic
def threads_lost(typing_context):  # type: ignore[no-untyped-def]
    """Whether compiled code must not run a parallel loop, the process being a forked one."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        flag = builder.module.globals.get(_LOST)
        if flag is None:
            flag = ir.GlobalVariable(builder.module, ir.IntType(8), _LOST)
        return builder.trunc(builder.load(flag), ir.IntType(1))

    return types.boolean(), generate


def parallel_njit(**options: Any) -> Callable[[Any], _Parallel]:
    """`njit(parallel=True)` of a function called from Python, which works in forked processes too.

    There the same loops run one iteration after another. They give the same bits: no result in this
    package depends on the number of threads.
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
        # The name keeps the two apart in the cache on disk, where options do not count.
        f, name = self._function, f"{self._function.__name__}_serial"
        twin = FunctionType(f.__code__, f.__globals__, name, f.__defaults__, f.__closure__)
        twin.__qualname__, twin.__module__ = name, f.__module__
        return njit(**self._options)(twin)

    def __call__(self, *arguments: Any) -> Any:
        return (self.serial if _lost.value else self.threaded)(*arguments)
