"""The table and the pictures of peers.py, and the candidates in them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Result = dict[str, Any]


@dataclass(frozen=True)
class Candidate:
    """What is compared: bigsvm where it has solver settings, else a peer."""

    label: str
    colour: str  # Okabe and Ito's
    marker: str
    packages: dict[str, str] = field(default_factory=dict)  # module -> what to install
    solver: dict[str, Any] | None = None
    at_most: int | None = None  # rows it is given


SKLEARN = {"sklearn": "scikit-learn"}
EXACT = {"schedule": "exact", "memory_limit": "4GiB"}
BLOCK = {"schedule": "block", "memory_limit": "480MiB"}
CANDIDATES = {
    "exact": Candidate("bigsvm exact", "#0072B2", "o", solver=EXACT),
    "block": Candidate("bigsvm block", "#D55E00", "s", solver=BLOCK),
    "sklearn": Candidate("scikit-learn SVC", "#009E73", "^", SKLEARN),
    "sklearnex": Candidate(
        "scikit-learn-intelex SVC", "#CC79A7", "D", {**SKLEARN, "sklearnex": "scikit-learn-intelex"}
    ),
    "nystroem": Candidate("Nystroem + LinearSVC", "#E69F00", "v", SKLEARN),
    "subsample": Candidate("SVC on 5,000 rows", "#56B4E9", "P", SKLEARN, at_most=5000),
}


def best_of(results: list[Result]) -> Result:
    """The best times of the repetitions, and the largest of the sizes."""
    best = dict(min(results, key=lambda result: result["fit_seconds"]))
    best["predict_seconds"] = min(result["predict_seconds"] for result in results)
    for worst in ("peak_bytes", "others"):
        best[worst] = max(result[worst] for result in results)
    return best


def table(best: dict[str, Result]) -> str:
    """The comparison, aligned; ratios are against scikit-learn-intelex, smaller is better."""

    def a_value(result: Result) -> float:
        return result["predict_seconds"] / result["test_rows"] / max(1, result["n_support"])

    reference = best.get("sklearnex")
    head = ("candidate", "C", "sigma", "fit s", "predict s", "us/row", "ns/row/SV", "peak MB")
    lines = [(*head, "SVs", "accuracy %", "fit ratio", "predict/SV ratio")]
    for name, result in best.items():
        ratios = ("-", "-")
        if reference:
            fit_ratio = result["fit_seconds"] / reference["fit_seconds"]
            ratios = (f"{fit_ratio:.2f}", f"{a_value(result) / a_value(reference):.2f}")
        lines.append((
            CANDIDATES[name].label, f"{float(result['C']):g}", f"{float(result['sigma']):g}",
            f"{result['fit_seconds']:.2f}", f"{result['predict_seconds']:.3f}",
            f"{1e6 * result['predict_seconds'] / result['test_rows']:.1f}",
            f"{1e9 * a_value(result):.2f}", f"{result['peak_bytes'] / 1e6:.0f}",
            f"{result['n_support']:,}", f"{100 * result['accuracy']:.2f}", *ratios,
        ))  # fmt: skip
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            f"{cell:<{width}}" if place == 0 else f"{cell:>{width}}"
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )


def save_picture(figure: Any, axes: Any, path: Path) -> None:
    axes.grid(color="0.9", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=160)


def put_legend(figure: Any) -> None:
    figure.legend(loc="outside upper center", ncols=2, frameon=False, handlelength=3)


def style_of(name: str) -> dict[str, Any]:
    candidate = CANDIDATES[name]
    return {
        "color": candidate.colour, "marker": candidate.marker, "label": candidate.label,
        "markersize": 5, "markerfacecolor": "white", "markeredgewidth": 1.2, "linewidth": 1.6,
    }  # fmt: skip


def draw_accuracy(
    path: Path, best: dict[str, Result], curve_of: Callable[[Result], list[tuple[float, float]]]
) -> None:
    """Test accuracy over fit time: bigsvm's snapshots as lines, the peers as points."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    figure = Figure(figsize=(7, 4.6), layout="constrained")
    axes = figure.subplots()
    shown = [100 * result["accuracy"] for result in best.values()]
    floor = min(shown) - 2  # the very first models are far below, and would flatten the rest
    for name, result in best.items():
        end = (result["fit_seconds"], 100 * result["accuracy"])
        curve = [(seconds, 100 * accuracy) for seconds, accuracy in curve_of(result)]
        style = style_of(name) | ({} if curve else {"markersize": 9, "linestyle": ""})
        axes.plot(*zip(*(curve or [end]), strict=True), **style)
        shown += [accuracy for _, accuracy in curve if accuracy >= floor]
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    margin = 0.12 * max(1.0, max(shown) - min(shown))
    axes.set_ylim(min(shown) - margin, min(100.5, max(shown) + 1.5 * margin))
    axes.margins(x=0.15)
    axes.set_xlabel("Fit time (s)")
    axes.set_ylabel("Test accuracy (%)")
    put_legend(figure)
    save_picture(figure, axes, path)


def draw_growth(path: Path, grown: dict[str, dict[int, float]]) -> None:
    """Fit time over the number of training rows, both logarithmic."""
    from matplotlib import ticker
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    figure = Figure(figsize=(7, 4.6), layout="constrained")
    axes = figure.subplots()
    for name, times in grown.items():
        axes.plot(*zip(*sorted(times.items()), strict=True), **style_of(name))
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(
        ticker.FixedLocator(sorted({n for t in grown.values() for n in t}))
    )
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("Training rows")
    axes.set_ylabel("Fit time (s)")
    put_legend(figure)
    save_picture(figure, axes, path)
