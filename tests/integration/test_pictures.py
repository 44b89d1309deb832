"""Pictures: what was trained on what, over iterations and time; nothing is cut off."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from tests.support.real_table import command, magic_table, train_on


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that are saved."""
    saved: list[Figure] = []
    save = Figure.savefig

    def noted(figure: Figure, *arguments: Any, **options: Any) -> None:
        saved.append(figure)
        save(figure, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", noted)
    return saved


def texts(figure: Figure) -> list[str]:
    found = [axes.get_ylabel() for axes in figure.axes] + [
        axes.get_xlabel() for axes in figure.axes
    ]
    return [*found, figure.get_suptitle()]


def assert_inside(figure: Figure) -> None:
    """No text leaves the figure."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    # Matplotlib has labels of ticks beyond the limits of an axis, too, and does not draw them.
    ticks = {text for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)
             for text in axis.get_ticklabels(which="both")}  # fmt: skip
    for text in set(figure.findobj(Text)) - ticks:
        if text.get_text() and text.get_visible():
            box = text.get_window_extent(renderer)
            assert box.x0 >= -1 and box.x1 <= figure.bbox.x1 + 1, text.get_text()
            assert box.y0 >= -1 and box.y1 <= figure.bbox.y1 + 1, text.get_text()


def test_the_evolution_of_a_run(data_dir: Path, tmp_path: Path, figures: list[Figure]) -> None:
    run = train_on(magic_table(data_dir, 700), tmp_path, tolerance=0.05)
    command("evaluate", run, "--picture", tmp_path / "all.png")
    one, _, together = figures
    shown = texts(one)
    assert "run: table.csv, rbf kernel, gamma 0.125, C 10, mfw" in shown
    for label in ("Test accuracy (%)", "Test AUC (%)", "Support vectors", "Iteration"):
        assert label in shown
    assert "Training time (s)" in shown and len(one.axes) == 6
    for axes in one.axes:
        assert len(axes.get_lines()[0].get_xdata()) > 2
    assert_inside(one)
    assert_inside(together)
    (run / "metrics.jsonl").write_text("torn {\n")
    command("evaluate", run)
    assert len(figures[3].axes) == 3, "without times, over the iterations alone"


@pytest.mark.parametrize(
    ("C", "sigma"), [([1], [2]), ([0.001, 1], [2]), ([1], [0.0625, 1, 64]), ([0.1, 1, 10], [1, 2])]
)
def test_a_heat_map_of_any_size_is_whole(
    C: list, sigma: list, data_dir: Path, tmp_path: Path, figures: list[Figure]
) -> None:
    values = {
        "data": {"source": str(data_dir / "heart_scale"), "train": str(tmp_path / "h.zarr")},
        "model": {"kernel": {"name": "rbf", "sigma": 2}},
        "tune": {"C": C, "sigma": sigma, "folds": 2, "metric": "average_precision"},
    }
    (tmp_path / "t.yaml").write_text(yaml.safe_dump(values))
    command("tune", tmp_path / "t.yaml", "--run-dir", tmp_path / "run")
    (figure,) = figures
    assert "best average precision" in " ".join(figure.get_suptitle().split())
    assert_inside(figure)
