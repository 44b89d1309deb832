"""One page with everything in it: tables with the paper's figures beside ours, and the pictures."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import sqrt
from pathlib import Path

from bigsvm.files.atomic import atomic_write
from scripts.paper.published import Cell

# Two means of ten repetitions each differ by chance this far in one case of twenty (Welch's t).
BY_CHANCE = 2.1
# Where the paper has one run only: percentage points, and the share of a count.
POINTS, SHARE = 1.0, 0.15

STYLE = """
body { font: 16px/1.5 Georgia, serif; color: #222; max-width: 60rem; margin: 2rem auto;
  padding: 0 1rem; }
h1, h2, h3, th { font-family: Helvetica, Arial, sans-serif; line-height: 1.2; }
h2 { margin-top: 3rem; border-top: 2px solid #222; padding-top: .6rem; }
table { border-collapse: collapse; font-size: .82rem; margin: 1rem 0; }
th, td { padding: .2rem .6rem; text-align: right; border-bottom: 1px solid #ddd; }
th { border-bottom: 2px solid #888; vertical-align: bottom; }
th:first-child, td:first-child, .text { text-align: left; }
.paper { color: #666; }
.more { background: #fde3cf; } .fewer { background: #d6e8f5; }
.rank1 { font-weight: bold; } .rank3 { font-style: italic; }
img { max-width: 100%; } figcaption, .note { font-size: .85rem; color: #444; }
figure { margin: 1.5rem 0; }
"""
LEGEND = """<p class="note">The paper's figures are grey, ours black. A shaded cell differs by more
than chance: &#9650; ours is more, &#9660; ours is less (two means of ten repetitions: |t| &gt;
2.1; one run in the paper: more than one percentage point, or 15 % of a count). Where models were
ranked (Wilcoxon's signed-rank test, 5 %), the <span class="rank1">best group is bold</span> and the
<span class="rank3">worst in italics</span>, in the paper's figures and in ours.</p>"""


@dataclass(frozen=True)
class Section:
    """A part of the page: HTML under a title, and its anchor."""

    name: str
    title: str
    html: str


def paragraph(text: str) -> str:
    return f"<p>{text}</p>"


def difference(paper: Cell, ours: Cell) -> str:
    """Whether ours is "more" or "fewer" than the paper's by more than chance; else ""."""
    gap = ours.mean - paper.mean
    if paper.std is not None and ours.std is not None:
        spread = sqrt(paper.std**2 / paper.repetitions + ours.std**2 / ours.repetitions)
        significant = abs(gap) > BY_CHANCE * spread + 0.005 * abs(paper.mean)
    elif paper.mean <= 100 and ours.mean <= 100:
        significant = abs(gap) > POINTS
    else:
        significant = abs(gap) > SHARE * paper.mean
    return ("more" if gap > 0 else "fewer") if significant else ""


def number(value: float) -> str:
    """As many digits as the paper has: three, or two decimals of a percentage."""
    if value >= 1000:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.2f}" if value < 100 or value == 100 else f"{value:.0f}"


def shown(cell: Cell) -> str:
    """A cell as the paper prints it: mean and deviation, in the style of its rank."""
    text = number(cell.mean)
    if cell.std is not None:
        text += f" &plusmn; {number(cell.std) if cell.std >= 100 else f'{cell.std:.2g}'}"
    return f'<span class="rank{cell.rank}">{text}</span>' if cell.rank else text


def beside(paper: Cell, ours: Cell) -> list[str]:
    """Two cells of a table: the paper's and ours, marked where they differ."""
    kind = difference(paper, ours)
    mark = {"more": "&nbsp;&#9650;", "fewer": "&nbsp;&#9660;", "": ""}[kind]
    return [
        f'<td class="paper">{shown(paper)}</td>',
        f'<td class="{kind}">{shown(ours)}{mark}</td>',
    ]


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], spans: Sequence[int] = ()) -> str:
    """An HTML table; `spans` are the widths of the headings, and cells may be whole <td>s."""
    spans = spans or [1] * len(headings)
    head = "".join(
        f'<th colspan="{span}">{heading}</th>' if span > 1 else f"<th>{heading}</th>"
        for heading, span in zip(headings, spans, strict=True)
    )
    body = "".join(
        "<tr>" + "".join(c if c.startswith("<td") else f"<td>{c}</td>" for c in row) + "</tr>\n"
        for row in rows
    )
    return f"<table>\n<tr>{head}</tr>\n{body}</table>\n"


def picture(path: Path, caption: str) -> str:
    """A picture inside the page itself."""
    data = base64.b64encode(path.read_bytes()).decode()
    return (
        f'<figure><img alt="{escape(caption)}" src="data:image/png;base64,{data}">'
        f"<figcaption>{caption}</figcaption></figure>\n"
    )


def write_page(path: Path, sections: Sequence[Section], preface: str) -> None:
    """The whole page, which needs no other file."""
    contents = "".join(f'<li><a href="#{s.name}">{s.title}</a></li>' for s in sections)
    body = "".join(f'<h2 id="{s.name}">{s.title}</h2>\n{s.html}' for s in sections)
    html = (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>The paper's experiments, with bigsvm</title><style>{STYLE}</style></head><body>\n"
        f"<h1>The paper's experiments, with bigsvm</h1>\n{preface}{LEGEND}<ol>{contents}</ol>\n"
        f"{body}</body></html>\n"
    )
    with atomic_write(path) as temporary:
        temporary.write_text(html)
