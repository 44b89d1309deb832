"""Sizes and durations, given as numbers or as text with a unit."""

import math
import re
from typing import Annotated, Any

from pydantic import BeforeValidator

_NUMBER = r"(?:\d+\.?\d*|\.\d+)"
_SIZES = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_SIZES |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


# Not pydantic's ByteSize: it ignores what follows a number, and reads 1.2.3GB as one byte.
def _size(value: Any) -> Any:
    if isinstance(value, str):
        match = re.fullmatch(rf"\s*({_NUMBER})\s*([kmgtKMGT]?[iI]?[bB]?)\s*", value)
        if not match or match[2].upper() not in _SIZES:
            raise ValueError("a size is a number of bytes, or text such as 512MiB, 2GiB, 800MB")
        size = float(match[1]) * _SIZES[match[2].upper()]
        if not math.isfinite(size):
            raise ValueError("is too large")
        return int(size)
    return value


def _duration(value: Any) -> Any:
    if isinstance(value, str):
        if re.fullmatch(r"(\d+:)?\d+:\d\d", value):
            parts = [float(part) for part in reversed(value.split(":"))]
            return sum(float(part) * 60**power for power, part in enumerate(parts))
        units = re.findall(rf"({_NUMBER})\s*([smhd])", value)
        if not units or re.sub(rf"{_NUMBER}\s*[smhd]|\s", "", value):
            raise ValueError("a time is a number of seconds, or text such as 90s, 2h30m, 01:30:00")
        return sum(float(number) * _SECONDS[unit] for number, unit in units)
    return value


Size = Annotated[int, BeforeValidator(_size)]
Duration = Annotated[float, BeforeValidator(_duration)]
