"""Decision values computed by the workers of a Dask cluster, a round of rows after the other.

The driver reads, scales and writes; rows travel to the workers, and decision values back. Each
worker is given the model once. While one round is collected and written the next is computed.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from uuid import uuid4

import numpy as np

from bigsvm.cluster.worker_process import software_versions, version_mismatch
from bigsvm.cluster.workers import Cluster, PendingTasks
from bigsvm.core.scaling import Scaling
from bigsvm.models.scoring import LabelledChunk, ScoredChunk, Scorer, check_finite, scale_chunks
from bigsvm.prediction import worker as predict_worker
from bigsvm.stores.rows import prefetch_map

CALL_BYTES = 4 * 2**20  # of rows, for one task
ROUND_BYTES = 64 * 2**20
ROUNDS = 2  # on their way at once


@dataclass(frozen=True)
class Round:
    """The rows of some consecutive chunks on their way, and where each chunk ends."""

    rows: np.ndarray
    chunks: list[tuple[int, int, np.ndarray | None]]  # start, stop, codes
    sent: PendingTasks


class ClusterScorer:
    """A scorer that every worker of a cluster is given; see `Scorer`."""

    def __init__(self, cluster: Cluster, scorer: Scorer) -> None:
        self._cluster = cluster
        self._key = uuid4().hex
        ours = software_versions()
        cluster.check_workers(
            lambda seen: version_mismatch(seen, ours, "this process"),
            predict_worker.take,
            self._key,
            ours,
            scorer,
        )

    def round_bytes(self) -> int:
        """How many bytes of rows keep all workers busy, within a bound."""
        return min(ROUND_BYTES, CALL_BYTES * len(self._cluster.workers()))

    def send(self, rows: np.ndarray) -> PendingTasks:
        """Divide rows among the workers."""
        workers = list(self._cluster.workers().items())
        evenly = -(-len(rows) // len(workers))
        size = max(1, min(evenly, CALL_BYTES // (4 * rows.shape[1])))
        calls = []
        for number, start in enumerate(range(0, len(rows), size)):
            address, threads = workers[number % len(workers)]
            calls.append((address, (self._key, rows[start : start + size], threads)))
        return self._cluster.send(predict_worker.decide, calls)

    def receive(self, rows: np.ndarray, sent: PendingTasks) -> np.ndarray:
        """The decision values (model, row) of rows that were sent."""
        while (answers := self._cluster.collect(sent)) is None:
            sent = self.send(rows)  # whoever had them is gone
        return np.concatenate(answers, axis=1)


def score_on_cluster(
    cluster: Cluster,
    scorer: Scorer,
    chunks: Iterator[LabelledChunk],
    where: str,
    scaling: Scaling | None = None,
) -> Iterator[ScoredChunk]:
    """Score all chunks on a cluster; the same values, in the same order, as `scoring.score_chunks`.

    Parameters
    ----------
    cluster : Cluster
    scorer : Scorer
    chunks, where, scaling
        As for `scoring.score_chunks`.

    Yields
    ------
    ScoredChunk
        One for each chunk.
    """
    workers = ClusterScorer(cluster, scorer)
    under_way: deque[Round] = deque()
    for together in _grouped(scale_chunks(chunks, where, scaling), workers):
        rows = np.concatenate([chunk.x for chunk in together], dtype=np.float32)
        edges = [(start, start + len(x), codes) for start, x, codes in together]
        under_way.append(Round(rows, edges, workers.send(rows)))
        if len(under_way) > ROUNDS:
            yield from _finished(under_way.popleft(), workers, where)
    while under_way:
        yield from _finished(under_way.popleft(), workers, where)


def _grouped(
    chunks: Iterator[LabelledChunk], workers: ClusterScorer
) -> Iterator[list[LabelledChunk]]:
    """The chunks in groups that keep all workers busy, read ahead in the background."""
    together: list[LabelledChunk] = []
    left = workers.round_bytes()
    for chunk in prefetch_map(lambda _: next(chunks, None), repeat(None)):
        if chunk is None:
            break
        together.append(chunk)
        left -= 4 * chunk.x.size
        if left <= 0:
            yield together
            together, left = [], workers.round_bytes()
    if together:
        yield together


def _finished(round: Round, workers: ClusterScorer, where: str) -> Iterator[ScoredChunk]:
    decisions = workers.receive(round.rows, round.sent)
    first = round.chunks[0][0]
    check_finite(decisions, first, where)
    for start, stop, codes in round.chunks:
        yield ScoredChunk(start, stop, codes, decisions[:, start - first : stop - first])
