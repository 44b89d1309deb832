"""The labels of a text file: all numbers or all text."""

from pathlib import Path

import numpy as np

from bigsvm.core.compiled import njit
from bigsvm.core.errors import UserError
from bigsvm.core.messages import quoted
from bigsvm.readers.number import EXACT, LARGEST_EXACT, as_number

MAX_LABEL_BYTES = 256
NUMBER, TEXT = "numeric", "text"
MISSING = {"", "?", "nan", "na", "null", "inf", "+inf", "-inf", "-nan", "infinity", "-infinity"}


class LabelDecoder:
    """Decodes label tokens, as numbers or as text for the whole file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.kind: str | None = None

    def decode(
        self,
        text: np.ndarray,
        spans: np.ndarray,
        values: np.ndarray,
        states: np.ndarray,
        lines: np.ndarray,
    ) -> np.ndarray:
        """The labels text[spans]; `values` holds those whose state is EXACT."""
        if (states == EXACT).all():
            self._require_kind(NUMBER, lines[0])
            return values
        widths = spans[:, 1] - spans[:, 0]
        if widths.max() > MAX_LABEL_BYTES:
            raise UserError(
                f"{self.path}, line {lines[widths.argmax()]}: the label is longer than "
                f"{MAX_LABEL_BYTES} bytes; is it the right column?"
            )
        raw = _gather(text, spans, max(1, int(widths.max())))
        tokens, first, inverse = np.unique(
            raw.view(f"S{raw.shape[1]}")[:, 0], return_index=True, return_inverse=True
        )
        words = [self._word(token, lines[k]) for token, k in zip(tokens, first, strict=True)]
        numbers = [as_number(word) for word in words]
        for k in np.argsort(first):
            self._require_kind(TEXT if numbers[k] is None else NUMBER, lines[first[k]])
        if self.kind == NUMBER:
            return self._exact_numbers(words, numbers, lines[first])[inverse]
        return np.array(words)[inverse]

    def _exact_numbers(
        self, words: list[str], numbers: list[float | None], lines: np.ndarray
    ) -> np.ndarray:
        """The numbers as float64, or as Python integers if some need more than 53 bits."""
        values = np.array(numbers, np.float64)
        if (np.abs(values) < LARGEST_EXACT).all():
            return values
        exact: list[int | float] = values.tolist()
        for k, word in enumerate(words):
            if word.lstrip("+-").isdecimal():
                exact[k] = int(word)
                if not -(2**63) <= exact[k] < 2**64:
                    raise UserError(
                        f"{self.path}, line {lines[k]}: the label {word} has more than 64 bits; is "
                        "it the right column?"
                    )
        return np.array(exact, object)

    def _word(self, token: bytes, line: int) -> str:
        try:
            word = token.decode().replace('""', '"')
        except UnicodeDecodeError as failure:
            raise UserError(
                f"{self.path}, line {line}: label {quoted(token)} is not UTF-8 text"
            ) from failure
        if word.lower() in MISSING:
            raise UserError(f"{self.path}, line {line}: the label is missing ({word!r})")
        return word

    def _require_kind(self, kind: str, line: int) -> None:
        if self.kind is None:
            self.kind = kind
        elif self.kind != kind:
            raise UserError(
                f"{self.path}, line {line}: the label is {kind} where those before it are "
                f"{self.kind}; they must be all numbers or all text (is there a header line?)"
            )


@njit(cache=True)
def _gather(text: np.ndarray, spans: np.ndarray, width: int) -> np.ndarray:
    out = np.zeros((len(spans), width), np.uint8)
    for k in range(len(spans)):
        for i in range(spans[k, 1] - spans[k, 0]):
            out[k, i] = text[spans[k, 0] + i]
    return out
