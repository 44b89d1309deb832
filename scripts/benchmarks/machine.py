"""The machine that peers.py runs on: what it is, and how busy."""

import importlib.metadata
import os
import platform
from pathlib import Path


def busy_seconds() -> float:
    """Processor time that the machine has spent on anything since it started (0: not known)."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return 0.0
    user, nice, system, _, _, *rest = map(int, stat.read_text().split("\n", 1)[0].split()[1:])
    return (user + nice + system + sum(rest[:3])) / os.sysconf("SC_CLK_TCK")


def cpu_model() -> str:
    """What the processor calls itself."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def machine(threads: int) -> str:
    """Processor, threads and versions, in two lines."""
    versions = [f"Python {platform.python_version()}"]
    for name in ("bigsvm", "numpy", "numba", "scikit-learn", "scikit-learn-intelex"):
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{cpu_model()}, {threads} of {os.cpu_count()} cores, {memory:.0f} GiB, "
        f"{platform.system()} {platform.release()}\n{', '.join(versions)}"
    )
