"""Results computed in the background while the ones before them are used."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def prefetched(function: Callable[[T], R], items: Iterable[T], ahead: int = 1) -> Iterator[R]:
    """``map(function, items)``, with up to `ahead` results on their way while one is used."""
    with ThreadPoolExecutor(max_workers=ahead) as background:
        waiting: deque[Future[R]] = deque()
        try:
            for item in items:
                waiting.append(background.submit(function, item))
                if len(waiting) > ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:  # nobody wants them any more
                future.cancel()
