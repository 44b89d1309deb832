"""The lines that tell how far a training has come."""

import math

from bigsvm.terminal.display import Report, TimeLeft, as_line

REPORT = Report(440, 0, 2e-3, 0.1, 60, 50, 9.2, 0)


def test_a_line_leaves_out_what_is_not_known_yet() -> None:
    first = as_line(REPORT, TimeLeft(1e-5, 1000, None).rate, math.inf)
    assert first.endswith("working      60  9 s gone")
    assert as_line(REPORT, 100.0, 70.0).endswith("100 it/s  9 s gone, about 70 s left")
