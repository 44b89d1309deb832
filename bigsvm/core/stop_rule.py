"""The stop rule: when training has converged."""

from dataclasses import dataclass


@dataclass(frozen=True)
class StopRule:
    """Converged when gap <= relative * a'Qa + absolute and there are no idle violators.

    a'Qa is the margin, about the decision value of a support vector on it. The relative rule is the
    default: scaled so that the margin is 1, alpha is LIBSVM's dual variable, and gap / a'Qa is what
    LIBSVM and scikit-learn call `tol`. The gap bounds f - f*, the distance of
    f = 1/2 a'Qa from its minimum over the working set, so (f - f*) / f is at most 2 * relative.

    The absolute rule is the paper's. The margin shrinks as 1 / n and as 1 / C, so the same absolute
    tolerance means something different on every problem; where it exceeds the margin, even a
    useless model counts as converged.

    Attributes
    ----------
    relative : float
        Below 1; 0 under the absolute rule.
    absolute : float
        0 under the relative rule.
    """

    relative: float = 0.0
    absolute: float = 0.0

    def __post_init__(self) -> None:
        if not (0 <= self.relative < 1 and 0 <= self.absolute < float("inf")):
            raise ValueError(f"{self!r}: relative is from 0 to 1, absolute is 0 or more")
        if (self.relative > 0) == (self.absolute > 0):
            raise ValueError(f"{self!r}: one of the two is above 0, the other is 0")

    def threshold(self, quad_form: float) -> float:
        """The largest gap that counts as closed, where a'Qa is `quad_form`."""
        # Rounding may leave a'Qa just below 0 at a huge C; a gap of 0 is still closed there.
        return self.relative * max(quad_form, 0.0) + self.absolute

    def __str__(self) -> str:
        return f"gap <= {self.absolute!r}" if self.absolute else f"gap <= {self.relative!r} a'Qa"
