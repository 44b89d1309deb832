"""The inputs of `prepare`: a named source, synthetic data, or files."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from bigsvm.config import PrepareOptions
from bigsvm.core.errors import UserError
from bigsvm.preparation.sources import SOURCES, SYNTHETIC
from bigsvm.preparation.synthetic import synthetic_reader
from bigsvm.readers import Reader, open_reader
from bigsvm.readers.arrow_batches import is_arrow
from bigsvm.readers.columns import match_features
from bigsvm.readers.detect import detect_format
from bigsvm.tables.files import SourceName, expand, is_table_source, shown_source
from bigsvm.tables.reader import needs_table, open_table

SYNTHETIC_SIZE = (100_000, 20, 0.1)  # rows, features, noise


@dataclass(frozen=True)
class Input:
    """A file, or synthetic data, opened for reading."""

    name: str  # for messages
    reader: Reader


def with_source_defaults(source: SourceName, options: PrepareOptions) -> PrepareOptions:
    """The options, with the defaults of a named source where the user gave none."""
    known = SOURCES.get(str(source))
    defaults: dict[str, object] = {}
    if known is not None:
        if options.format == "auto":
            defaults["format"] = known.format
        if options.positive is None:
            defaults["positive"] = known.positive
        if options.drop_value is None:
            defaults["drop_value"] = known.drop_value
    if source == SYNTHETIC:
        if options.weight_column is not None:
            raise UserError(f"the source {SYNTHETIC!r} has no weights; leave out weight_column")
        for key, value in zip(("rows", "features", "noise"), SYNTHETIC_SIZE, strict=True):
            if getattr(options, key) is None:
                defaults[key] = value
    elif options.rows is not None or options.noise is not None:
        raise UserError(f"rows and noise are for the source {SYNTHETIC!r}; leave them out here")
    if options.scaling is None:
        defaults["scaling"] = _default_scaling(source, options)
    return options.model_copy(update=defaults)


def _default_scaling(source: SourceName, options: PrepareOptions) -> str:
    """See `PrepareOptions.scaling`."""
    if source == SYNTHETIC or str(source) in SOURCES:
        return "none"
    path = expand(source)[0]
    if not is_arrow(path) and detect_format(path, options.to_read()) == "libsvm":
        return "none"
    return "standard"


def check_source(source: SourceName) -> None:
    """Reject a source that is neither a known name nor files."""
    if is_table_source(source):
        expand(source)
        return
    assert not isinstance(source, tuple)
    if source != SYNTHETIC and str(source) not in SOURCES and not Path(source).is_file():
        raise UserError(
            f"{source}: there is no such file, and no source of this name; "
            f"known are: {', '.join([*sorted(SOURCES), SYNTHETIC])}"
        )


def open_inputs(
    source: SourceName, options: PrepareOptions, files: Mapping[str, Path]
) -> dict[str, Input]:
    """The inputs by part: `train`, and `test` if `files` has one."""
    if source == SYNTHETIC:
        assert options.rows and options.features and options.noise is not None
        synthetic = synthetic_reader(options.rows, options.features, options.noise, options.seed)
        inputs = {"train": Input(SYNTHETIC, synthetic)}
        if "test" in files:
            inputs["test"] = _open(files["test"], options, synthetic.d)
        return _checked(inputs, options)
    train = [path for part, path in files.items() if part != "test"]
    if needs_table(train, options):
        reader = open_table(train, options)
        inputs = {"train": Input(shown_source(source), reader)}
        if "test" in files:
            encoding = getattr(reader, "encoding", None)
            inputs["test"] = Input(
                str(files["test"]), open_table([files["test"]], options, encoding)
            )
        return _checked(inputs, options)
    inputs = {part: _open(path, options) for part, path in files.items()}
    wider = max(data.reader.d for data in inputs.values())
    for part, path in files.items():
        if inputs[part].reader.d < wider and _omits_zeros(path, options):
            inputs[part] = _open(path, options, wider)
    return _checked(inputs, options)


def _open(path: Path, options: PrepareOptions, features: int | None = None) -> Input:
    return Input(str(path), open_reader(path, options.to_read(features)))


def _omits_zeros(path: Path, options: PrepareOptions) -> bool:
    """Whether a file may have more features than it shows, because zeros are omitted."""
    return detect_format(path, options.to_read()) == "libsvm"


def _checked(inputs: dict[str, Input], options: PrepareOptions) -> dict[str, Input]:
    if "test" in inputs:
        train, test = inputs["train"], inputs["test"]
        if options.splits:
            raise UserError(
                f"the test set is {test.name}; leave out test_rows and test_fraction, or the file"
            )
        if train.reader.d != test.reader.d:
            raise UserError(
                f"{test.name}: has {test.reader.d} features where {train.name} has "
                f"{train.reader.d}; both need the same"
            )
        names = train.reader.feature_names
        reader = match_features(test.reader, names, test.name, train.name)
        inputs["test"] = replace(test, reader=reader)
    return inputs
