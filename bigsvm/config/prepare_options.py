"""The options of `prepare`."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from bigsvm.core.errors import UserError
from bigsvm.core.labels import Label
from bigsvm.readers import Format, ReadOptions


class PrepareOptions(BaseModel):
    """Options of `prepare`; a named source's own format, drop_value and positive are defaults.

    Parameters
    ----------
    scaling : {"none", "standard", "minmax"}, optional
        Fitted on the training rows only. `minmax` maps them to [-1, 1]. Default: standard for
        files; none for named sources, synthetic data and LIBSVM text, which is often scaled already
        and whose zeros are meaningful.
    clip : float, optional
        After scaling, clip values to [-clip, clip].
    test_rows, test_fraction, seed : optional
        Split off exactly this many rows, or this fraction of them, chosen by `seed`, for testing.
    drop_value : float or "none", optional
        Leave out rows that have this value in every feature.
    positive : label, optional
        The label of +1; all others are -1. Default: the larger of two labels; of more, each is a
        class of its own.
    chunk_rows : int, optional
        Rows in a chunk of the store; default: 8 MiB of them.
    compression : {"zstd", "none"}, optional
        Default: zstd for Zarr, none for HDF5.
    weight_column : str or int, optional
        The column whose values are stored beside the rows as `weight`, for `model.sample_weight`
        or `model.weights` of a config.
    format, label_column, header, delimiter, features
        How to read the file: see `bigsvm.readers.ReadOptions`.
    columns, ignore : list of str, optional
        Of a table: the columns that become features, or those that do not.
    missing : {"error", "drop", "mean", "median", "indicator"}, optional
        How missing values are treated: as an error (the default); by dropping the row; by the mean
        or median of the column; by the mean and an indicator feature.
    categorical : list of str, optional
        Columns with one indicator feature for each of their values; "auto": all columns of text.
    unseen : {"error", "ignore"}, optional
        How a value of such a column is treated that no training row has.
    rows, noise
        With `features`: the size of the source `synthetic`, and the overlap of its classes.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    scaling: Literal["none", "standard", "minmax"] | None = None
    clip: float | None = Field(default=None, gt=0)
    test_rows: int | None = Field(default=None, ge=1)
    test_fraction: float | None = Field(default=None, gt=0, lt=1)
    seed: int = Field(default=0, ge=0)
    drop_value: float | Literal["none"] | None = None
    positive: Label | None = None
    chunk_rows: int | None = Field(default=None, ge=1)
    compression: Literal["zstd", "none"] | None = None
    weight_column: str | int | None = None
    format: Format = "auto"
    label_column: str | int | None = None
    header: bool | Literal["auto"] = "auto"
    delimiter: str | None = None
    features: int | None = Field(default=None, ge=1)
    columns: list[str] | None = Field(default=None, min_length=1)
    ignore: list[str] | None = Field(default=None, min_length=1)
    missing: Literal["error", "drop", "mean", "median", "indicator"] | None = None
    categorical: list[str] | None = Field(default=None, min_length=1)
    unseen: Literal["error", "ignore"] | None = None
    rows: int | None = Field(default=None, ge=1)
    noise: float | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _one_size_of_test_set(self) -> "PrepareOptions":
        if self.test_rows is not None and self.test_fraction is not None:
            raise ValueError("give test_rows or test_fraction, not both")
        return self

    @property
    def splits(self) -> bool:
        """Whether test rows are split off."""
        return self.test_rows is not None or self.test_fraction is not None

    def to_read(self, features: int | None = None) -> ReadOptions:
        """The part of the options that concerns reading."""
        return ReadOptions(
            format=self.format,
            label_column=self.label_column,
            weight_column=self.weight_column,
            header=self.header,
            delimiter=self.delimiter,
            features=features or self.features,
        )


def validate_options(values: dict[str, Any]) -> PrepareOptions:
    """PrepareOptions from plain values; a wrong one is a UserError that names it."""
    try:
        return PrepareOptions.model_validate(values)
    except ValidationError as mistakes:
        first = mistakes.errors()[0]
        key = f"{first['loc'][0]} = {first['input']!r}: " if first["loc"] else ""
        raise UserError(f"prepare option {key}{first['msg']}") from mistakes


def options_from_arguments(arguments: dict[str, Any]) -> PrepareOptions:
    """PrepareOptions from the values of a command line; None means not given."""
    given = {
        key: value
        for key, value in arguments.items()
        if key in PrepareOptions.model_fields and value is not None
    }
    if "header" in given:
        given["header"] = {"auto": "auto", "yes": True, "no": False}[given["header"]]
    features = given.get("features")
    if isinstance(features, str):
        if features.isdecimal():
            given["features"] = int(features)
        else:
            del given["features"]
            given["columns"] = [name.strip() for name in features.split(",") if name.strip()]
    return validate_options(given)
