"""The table of the robustness benchmark: its columns, and the targets of its figures."""

from dataclasses import dataclass

from scripts.benchmarks.problems import PROBLEMS, Problem
from scripts.benchmarks.solvers import Result

MAX_PASSES = 40
MAX_SUPPORT_RATIO = 1.1  # to exact
MAX_ACCURACY_LOSS = 0.2  # points, to exact
LARGE = 30_000  # rows, from which on the block schedule has to be twice as fast as the peer


def max_work(problem: Problem) -> float:
    """Return the target for work; a large C takes more iterations on the same kernel values."""
    return 15 if problem.C > 10 else 6


def max_time_ratio(n: int) -> float:
    """Return the target for the fit time, relative to the peer's."""
    return 0.5 if n >= LARGE else 1.0


@dataclass(frozen=True)
class Figure:
    """A number of the table.

    Attributes
    ----------
    text : str
        As printed.
    met : bool or None
        Whether it meets its target; None where it has none, or where it could not be measured.
    """

    text: str
    met: bool | None = None


def figure(value: float | None, spec: str, met: bool | None = None) -> Figure:
    """Format a value, which may be missing."""
    return Figure("-") if value is None else Figure(format(value, spec), met)


# Title and width of the columns of each group; widths leave room for an asterisk.
COLUMNS = {
    "": (("n", 8), ("tolerance", 10)),
    "block": (
        ("status", 13), ("passes", 7), ("work", 7), ("iterations", 11), ("SVs", 8),
        ("acc %", 7), ("seconds", 10),
    ),
    "exact": (("SVs", 8), ("acc %", 7), ("iterations", 11), ("seconds", 10)),
    "intelex": (("SVs", 8), ("acc %", 7), ("seconds", 10)),
    "block against": (("SVs/exact", 10), ("acc-exact", 10), ("acc-intelex", 12), ("s/intelex", 10)),
}  # fmt: skip
NAME_WIDTH = max(len(problem.name) for problem in PROBLEMS)


def header() -> str:
    """Return the two lines above the table."""
    groups = [f"{g:^{sum(w for _, w in columns)}}" for g, columns in COLUMNS.items()]
    titles = ["".join(f"{title:>{w - 1}} " for title, w in columns) for columns in COLUMNS.values()]
    return "\n".join(
        "|".join([f"{first:<{NAME_WIDTH}} ", *cells])
        for first, cells in (("", groups), ("problem", titles))
    )


def table_row(
    problem: Problem, tolerance: float, results: dict[str, Result]
) -> dict[str, list[Figure]]:
    """Return the figures of a problem, by group, in the order of `COLUMNS`.

    Parameters
    ----------
    problem : Problem
    tolerance : float
        Of block and exact.
    results : dict
        The `Result` of block, exact and intelex.
    """
    block, exact, peer = (results[solver] for solver in ("block", "exact", "intelex"))
    status_met = None if block.status == "no data" else block.status == "converged"
    passes_met = None if block.passes is None else block.passes <= MAX_PASSES
    work_met = None if block.work is None else block.work <= max_work(problem)
    return {
        "": [figure(block.n or exact.n or peer.n, ","), Figure(f"{tolerance:g}")],
        "block": [
            Figure(block.status, status_met),
            figure(block.passes, ",", passes_met),
            figure(block.work, ".1f", work_met),
            figure(block.iterations, ","),
            figure(block.n_support, ","),
            figure(block.accuracy, ".2f"),
            _seconds(block),
        ],
        "exact": [
            figure(exact.n_support, ","),
            figure(exact.accuracy, ".2f"),
            figure(exact.iterations, ","),
            _seconds(exact),
        ],
        "intelex": [
            figure(peer.n_support, ","),
            figure(peer.accuracy, ".2f"),
            _seconds(peer),
        ],
        "block against": [
            _support_ratio(block, exact),
            _accuracy_difference(block, exact, MAX_ACCURACY_LOSS),
            _accuracy_difference(block, peer, None),
            _time_ratio(block, peer),
        ],
    }


def _seconds(result: Result) -> Figure:
    if result.status == "timeout":
        return Figure(f">{result.seconds:g}")
    return figure(result.seconds, ".2f")


def _support_ratio(block: Result, exact: Result) -> Figure:
    if block.n_support is None or exact.n_support is None:
        return Figure("-")
    ratio = block.n_support / exact.n_support
    met = ratio <= MAX_SUPPORT_RATIO
    # Equal iterations mean that block took exact's steps, so that the comparison says nothing.
    same = (block.iterations, block.n_support) == (exact.iterations, exact.n_support)
    return Figure("same" if same else f"{ratio:.3f}", met)


def _accuracy_difference(block: Result, other: Result, loss: float | None) -> Figure:
    if block.accuracy is None or other.accuracy is None:
        return Figure("-")
    difference = block.accuracy - other.accuracy
    return Figure(f"{difference:+.2f}", None if loss is None else difference >= -loss - 1e-9)


def _time_ratio(block: Result, peer: Result) -> Figure:
    if block.n is None or block.seconds is None or peer.seconds is None:
        return Figure("-")
    ratio, target = block.seconds / peer.seconds, max_time_ratio(block.n)
    if peer.status == "timeout":  # its limit gives an upper bound, which can only meet the target
        return Figure(f"<{ratio:.2f}", True if ratio <= target else None)
    return Figure(f"{ratio:.2f}", ratio <= target)


def format_row(
    name: str, row: dict[str, list[Figure]], results: dict[str, Result], check: bool
) -> str:
    """Return a line of the table, with an asterisk at every figure that misses its target."""
    groups = [f"{name:<{NAME_WIDTH}} "]
    for group, figures in row.items():
        widths = [width for _, width in COLUMNS[group]]
        if group in ("exact", "intelex") and results[group].status not in ("converged", "timeout"):
            groups.append(f"{results[group].status:>{sum(widths) - 1}} ")
            continue
        cells = [
            f"{f.text:>{width - 1}}" + ("*" if check and f.met is False else " ")
            for f, width in zip(figures, widths, strict=True)
        ]
        groups.append("".join(cells))
    return "|".join(groups)
