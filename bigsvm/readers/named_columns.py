"""Features by their names: the order of the columns in a file is chance."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from bigsvm.core.errors import UserError
from bigsvm.readers import Batch, Reader
from bigsvm.readers.wording import shown

Names = Sequence[str] | None


class ReorderedReader:
    """See `bigsvm.readers`: the rows of another reader, with its features in another order."""

    def __init__(self, reader: Reader, names: Sequence[str]) -> None:
        assert reader.feature_names is not None
        self._reader = reader
        self._order = [reader.feature_names.index(name) for name in names]
        self.n: int | None = getattr(reader, "n", None)  # text does not say it beforehand
        self.d = reader.d
        self.feature_names: list[str] | None = list(names)

    def batches(self) -> Iterator[Batch]:
        """Yield all rows in order."""
        for batch in self._reader.batches():
            yield replace(batch, x=batch.x[:, self._order].copy())


def with_features_of(reader: Reader, names: Names, where: str, whose: str) -> Reader:
    """The reader of the file `where`, giving the features in the order of `names`.

    Without names there is nothing to go by but the order; other names are an error.
    """
    ours = reader.feature_names
    if names and ours and sorted(ours) == sorted(names) and len(set(ours)) == len(ours):
        return reader if ours == list(names) else ReorderedReader(reader, names)
    refuse_other_names(
        ours, names, where, whose, "rename its columns (is --label-column the right one?)"
    )
    return reader


def refuse_other_names(ours: Names, names: Names, where: str, whose: str, advice: str) -> None:
    """Refuse as many features of other names, or in another order, where both have names."""
    if not names or not ours:
        return
    for place, (one, other) in enumerate(zip(ours, names, strict=True), start=1):
        if one != other:
            raise UserError(
                f"{where}: its feature {place} is {shown(one)} where {whose} has {shown(other)}; "
                f"{advice}"
            )
