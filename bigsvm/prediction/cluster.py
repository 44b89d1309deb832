"""Decision values computed on a Dask cluster, in rounds of rows.

The driver reads, scales and writes; it sends rows to the workers, which return decision values.
Each worker receives the model once. While one round is written, the next is computed.
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

CALL_BYTES = 4 * 2**20  # rows of one task
ROUND_BYTES = 64 * 2**20
ROUNDS = 2  # in flight at a time


@dataclass(frozen=True)
class Round:
    """Consecutive chunks in flight: their rows, and where each chunk begins and ends."""

    rows: np.ndarray
    chunks: list[tuple[int, int, np.ndarray | None]]  # start, stop, codes
    sent: PendingTasks


class ClusterScorer:
    """A `Scorer` that is sent to every worker of a cluster."""

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
        """The bytes of rows that keep all workers busy, up to ROUND_BYTES."""
        return min(ROUND_BYTES, CALL_BYTES * len(self._cluster.workers()))

    def send(self, rows: np.ndarray) -> PendingTasks:
        """Distribute rows over the workers."""
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
            sent = self.send(rows)  # the workers that had them are gone
        return np.concatenate(answers, axis=1)


def score_on_cluster(
    cluster: Cluster,
    scorer: Scorer,
    chunks: Iterator[LabelledChunk],
    where: str,
    scaling: Scaling | None = None,
) -> Iterator[ScoredChunk]:
    """Score all chunks on a cluster, with the same results as `scoring.score_chunks`.

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
    in_flight: deque[Round] = deque()
    for group in _grouped(scale_chunks(chunks, where, scaling), workers):
        rows = np.concatenate([chunk.x for chunk in group], dtype=np.float32)
        edges = [(start, start + len(x), codes) for start, x, codes in group]
        in_flight.append(Round(rows, edges, workers.send(rows)))
        if len(in_flight) > ROUNDS:
            yield from _finished(in_flight.popleft(), workers, where)
    while in_flight:
        yield from _finished(in_flight.popleft(), workers, where)


def _grouped(
    chunks: Iterator[LabelledChunk], workers: ClusterScorer
) -> Iterator[list[LabelledChunk]]:
    """Group chunks into rounds that keep all workers busy, reading ahead in the background."""
    group: list[LabelledChunk] = []
    left = workers.round_bytes()
    for chunk in prefetch_map(lambda _: next(chunks, None), repeat(None)):
        if chunk is None:
            break
        group.append(chunk)
        left -= 4 * chunk.x.size
        if left <= 0:
            yield group
            group, left = [], workers.round_bytes()
    if group:
        yield group


def _finished(round: Round, workers: ClusterScorer, where: str) -> Iterator[ScoredChunk]:
    decisions = workers.receive(round.rows, round.sent)
    first = round.chunks[0][0]
    check_finite(decisions, first, where)
    for start, stop, codes in round.chunks:
        yield ScoredChunk(start, stop, codes, decisions[:, start - first : stop - first])
