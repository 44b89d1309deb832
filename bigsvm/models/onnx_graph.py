"""Export to ONNX: a graph from raw rows to labels, decision values and probabilities.

It uses plain operators in float64 rather than SVMClassifier, which sums in float32 (and gets one
label of the MiniBooNE test set wrong) and has no laplacian kernel. Rows are processed in blocks, so
that a large batch takes little memory.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.core.errors import UserError
from bigsvm.core.labels import classes_array
from bigsvm.core.scaling import Scaling
from bigsvm.core.version import __version__
from bigsvm.kernels import Kernel
from bigsvm.models.calibration import Calibration
from bigsvm.models.double_precision import LARGEST_EXPONENT, as_computed
from bigsvm.models.model import Model
from bigsvm.models.onnx_columns import take_columns

if TYPE_CHECKING:
    from onnx import ModelProto


# Opset 17 is from 2022, as is ONNX Runtime 1.12, the first that takes it.
OPSET, IR_VERSION = 17, 8
BLOCK_BYTES = 16 * 2**20  # kernel values computed at a time
_PROTOBUF_BYTES = 2**31 - 2**20
# The largest error at which |x|^2 + |z|^2 - 2 x.z is used as a squared distance; float32 has 1e-7.
_CANCELLATION = 1e-9


def onnx_model(model: Model) -> ModelProto:
    """The model as ONNX; input `X` (rows, features) float64, outputs `label` and `decision`.

    The decision values are (rows,), or (rows, classes) for more than two classes. A calibrated
    model has a third output, `probability` (rows, classes). A model of encoded columns has an input
    (rows, 1) for each column instead of X; see `bigsvm.models.onnx_columns`.
    """
    try:
        import onnx
    except ImportError as missing:
        raise UserError(
            "writing ONNX needs the package onnx: pip install 'bigsvm[onnx]'"
        ) from missing
    if model.support_vectors.nbytes > _PROTOBUF_BYTES:
        raise UserError(
            f"{model.n_support:,} support vectors of {model.n_features:,} features are more than "
            "the 2 GB that an ONNX file can hold; use python -m bigsvm.predict"
        )
    kernel = Kernel(**model.kernel)
    labels = classes_array(model.classes)
    kind = {"i": "int64", "u": "uint64", "f": "double"}.get(labels.dtype.kind, "string")
    if kind == "string":  # also numbers that no type of ONNX holds exactly
        labels = labels.astype(str)
    many = len(labels) > 2
    decision = _LINEAR if kernel.name == "linear" else _in_blocks(_kernel_sums(kernel, model))
    shape = f"rows, {len(labels)}" if many else "rows"
    likely = f", double[rows, {len(labels)}] probability" if model.calibration else ""
    made = onnx.parser.parse_model(f"""
        <ir_version: {IR_VERSION}, opset_import: ["": {OPSET}]>
        bigsvm (double[rows, {model.n_features}] X)
            => ({kind}[rows] label, double[{shape}] decision{likely}) {{
            {_scaled(model.scaling)}
            {decision}
            {_shifted(model)}
            {_LARGEST if many else _SIGN}
            label = Gather (classes, position)
            {_probability(model.calibration) if model.calibration else ""}
        }}""")
    used = {name for node in made.graph.node for name in _inputs(node)}
    for name, values in (_constants(kernel, model) | {"classes": labels}).items():
        if name in used:
            made.graph.initializer.append(_tensor(name, values))
    made.producer_name, made.producer_version = "bigsvm", __version__
    made.doc_string = (
        f"Sparse kernel SVM, {model.n_support} support vectors. Takes raw rows: the scaling is "
        "inside. "
        + (
            "The columns are in the order of feature_names, where the metadata has them. "
            if model.encoding is None
            else "Each column is an input (rows, 1): nan or empty text where a value is missing. "
        )
        + (
            "The largest decision value decides."
            if many
            else f"decision >= {model.threshold!r} means the second class."
        )
    )
    if model.encoding is not None:
        take_columns(made, model.encoding)
    onnx.helper.set_model_props(made, _metadata(model))
    onnx.checker.check_model(made, full_check=True)
    return made


def _scaled(scaling: Scaling | None) -> str:
    """The rows as the kernel takes them: scaled, and rounded to float32."""
    steps = "raw = Identity (X)\n"
    if scaling is not None:
        steps = "centred = Sub (X, offset)\nraw = Div (centred, scale)\n"
    if scaling is not None and scaling.clip is not None:
        steps = steps.replace("raw", "wide") + "raw = Clip (wide, clip_low, clip_high)\n"
    return steps + "single = Cast <to = 1> (raw)\nx = Cast <to = 11> (single)\n"


_LINEAR = "without = MatMul (x, weights)"

# Two classes have one column of decision values, more classes one each.
_SIGN = """
    decision = Squeeze (decisions, one)
    sign = GreaterOrEqual (decision, threshold)
    position = Cast <to = 7> (sign)
"""
_LARGEST = """
    decision = Identity (decisions)
    position = ArgMax <axis = 1, keepdims = 0> (decision)
"""


def _shifted(model: Model) -> str:
    """Add the intercept to the decision values."""
    return f"decisions = {'Add (without, intercept)' if model.intercept else 'Identity (without)'}"


def _probability(calibration: Calibration) -> str:
    """The probabilities (rows, classes) of `decisions`, which has a column per output."""
    if calibration.method == "sigmoid":
        steps = "steep = Mul (decisions, slopes)\nlogit = Add (steep, offsets)\n"
        steps += "found = Sigmoid (logit)\n"
    else:
        columns = range(len(calibration.outputs))
        steps = "".join(_isotonic(k, bool(np.ptp(calibration.outputs[k][1]))) for k in columns)
        steps += f"found = Concat <axis = 1> ({', '.join(f'likely_{k}' for k in columns)})\n"
    if len(calibration.outputs) == 1:
        return steps + "first = Sub (whole, found)\nprobability = Concat <axis = 1> (first, found)"
    return f"""{steps}
    total = ReduceSum <keepdims = 1> (found, one)
    some = Greater (total, zero)
    shares = Div (found, total)
    probability = Where (some, shares, equal_share)
    """


def _isotonic(k: int, rises: bool) -> str:
    """A sum of ramps from knot to knot, one at a time: memory does not grow with the knots."""
    start = f"""
    at_{k} = Constant <value_ints = [{k}]> ()
    f_{k} = Gather <axis = 1> (decisions, at_{k})
    least_{k} = Mul (f_{k}, zero)
    lowest_{k} = Add (least_{k}, base_{k})
    """
    if not rises:
        return start + f"likely_{k} = Identity (lowest_{k})\n"
    return f"""{start}
    likely_{k} = Scan <num_scan_inputs = 3,
        body = ramp_{k} (double[b, o] before_{k}, double from, double width, double rise)
               => (double[b, o] after_{k}) {{
            beyond_knot = Sub (f_{k}, from)
            part = Div (beyond_knot, width)
            bounded_part = Clip (part, zero, whole)
            added = Mul (bounded_part, rise)
            after_{k} = Add (before_{k}, added)
        }}> (lowest_{k}, from_{k}, width_{k}, rise_{k})
    """


def _calibration_constants(calibration: Calibration) -> dict[str, Any]:
    if calibration.method == "sigmoid":
        slopes, offsets = np.array(calibration.outputs).T
        return {"slopes": -slopes, "offsets": -offsets}
    values: dict[str, Any] = {}
    for k, output in enumerate(calibration.outputs):
        knots, shares = map(np.asarray, output)
        rises = np.diff(shares)
        kept = rises > 0
        values |= {
            f"base_{k}": shares[0],
            f"from_{k}": knots[:-1][kept],
            f"width_{k}": np.diff(knots)[kept],
            f"rise_{k}": rises[kept],
        }
    return values


def _in_blocks(kernel_sums: str) -> str:
    """The decision values of `x`, a column per f, block by block.

    Scan needs blocks of equal size: as few as possible, the last padded with rows of zeros.
    """
    return f"""
    n = Shape <start = 0, end = 1> (x)
    beyond = Add (n, most_rows_less_one)
    needed = Div (beyond, most_rows)
    blocks = Max (needed, one)
    more = Add (n, blocks)
    more_less_one = Sub (more, one)
    even = Div (more_less_one, blocks)
    rows_each = Max (even, one)
    rows_filled = Mul (rows_each, blocks)
    rows_missing = Sub (rows_filled, n)
    pads = Concat <axis = 0> (no_pads, rows_missing, no_pad)
    filled = Pad (x, pads, zero)
    in_blocks = Concat <axis = 0> (blocks, rows_each, features)
    blocked = Reshape (filled, in_blocks)
    z_wide = Cast <to = 11> (support_vectors)
    z = Transpose <perm = [1, 0]> (z_wide)
    {kernel_sums}
    in_rows = Concat <axis = 0> (rows_filled, n_sums)
    all_sums = Reshape (sums, in_rows)
    without = Slice (all_sums, start, n)
    """


def _for_each_block(kernel_values: str) -> str:
    """Compute `sums`; `kernel_values` defines `k` (rows, support vectors) for the rows `r`."""
    return f"""
    sums = Scan <num_scan_inputs = 1, body = block (double[b, d] r) => (double[b, c] f) {{
        {kernel_values}
        f = MatMul (k, coef)
    }}> (blocked)
    """


_EXPONENTIAL = "bounded = Clip (exponent, least_exponent, zero)\nk = Exp (bounded)"

# -2 and gamma are separate: ONNX Runtime drops a factor 2 gamma that rounds to 1 in float32.
_BY_PRODUCTS = """
    z_times = Mul (z, minus_two)
    z_squares = ReduceSumSquare <axes = [0], keepdims = 1> (z)
""" + _for_each_block(
    f"""
        products = MatMul (r, z_times)
        r_squares = ReduceSumSquare <axes = [1], keepdims = 1> (r)
        partial = Add (products, z_squares)
        distance = Add (partial, r_squares)
        exponent = Mul (distance, minus_gamma)
        {_EXPONENTIAL}
    """
)

_POLY = "z_times = Mul (z, gamma)\n" + _for_each_block(
    """
        products = MatMul (r, z_times)
        base = Add (products, coef0)
        k = Pow (base, degree)
    """
)


def _by_differences(size: str) -> str:
    """One feature at a time; a three-dimensional array would take too much memory."""
    return _for_each_block(
        f"""
        r_turned = Transpose <perm = [1, 0]> (r)
        rows_here = Shape <start = 0, end = 1> (r)
        shape = Concat <axis = 0> (rows_here, count)
        nothing = Expand (zero, shape)
        distance = Scan <num_scan_inputs = 2,
            body = feature (double[b, m] before, double[b] r_k, double[m] z_k)
                   => (double[b, m] after) {{
                column = Unsqueeze (r_k, one)
                difference = Sub (column, z_k)
                size = {size}
                after = Add (before, size)
            }}> (nothing, r_turned, z)
        exponent = Mul (distance, minus_gamma)
        {_EXPONENTIAL}
        """
    )


def _kernel_sums(kernel: Kernel, model: Model) -> str:
    if kernel.name == "poly":
        return _POLY
    if kernel.name == "laplacian":
        return _by_differences("Abs (difference)")
    if _cancels(kernel, model.support_vectors):
        return _by_differences("Mul (difference, difference)")
    return _BY_PRODUCTS


def _cancels(kernel: Kernel, support_vectors: np.ndarray) -> bool:
    """Whether |x|^2 + |z|^2 - 2 x.z loses too much somewhere.

    It does for x and z that are far out and close to each other. Then x is about as far out as some
    support vector, so the support vectors suffice to decide. If they are not close, the kernel
    value vanishes.
    """
    squares = np.einsum("ij,ij->i", support_vectors, support_vectors, dtype=np.float64)
    near = np.sqrt(LARGEST_EXPONENT / kernel.gamma)
    farthest = 2 * np.sqrt(squares.max()) + near
    rounding = np.finfo(np.float64).eps * support_vectors.shape[1]
    return bool(kernel.gamma * rounding * farthest**2 > _CANCELLATION)


def _constants(kernel: Kernel, model: Model) -> dict[str, np.ndarray]:
    """All constants that a graph may use."""
    effective = as_computed(kernel)
    values: dict[str, Any] = {
        "zero": 0.0,
        "threshold": model.threshold,
        "intercept": model.intercept,
        "gamma": effective.gamma,
        "minus_two": -2.0,
        "minus_gamma": -effective.gamma,
        "coef0": effective.coef0,
        "degree": float(effective.degree),
        "least_exponent": -LARGEST_EXPONENT,
        "coef": model.columns,
        "weights": model.support_vectors.astype(np.float64).T @ model.columns,
    }
    if model.calibration is not None:
        values |= _calibration_constants(model.calibration)
        values |= {"whole": 1.0, "equal_share": 1 / len(model.classes)}
    if model.scaling is not None:
        values |= {"offset": model.scaling.offset, "scale": model.scaling.scale}
        if model.scaling.clip is not None:
            values |= {"clip_low": -model.scaling.clip, "clip_high": model.scaling.clip}
    most_rows = max(1, BLOCK_BYTES // (8 * model.n_support))
    whole = {
        "one": [1],
        "start": [0],
        "no_pad": [0],
        "no_pads": [0, 0],
        "most_rows": [most_rows],
        "most_rows_less_one": [most_rows - 1],
        "features": [model.n_features],
        "count": [model.n_support],
        "n_sums": [model.columns.shape[1]],
    }
    return (
        {name: np.asarray(value, np.float64) for name, value in values.items()}
        | {name: np.asarray(value, np.int64) for name, value in whole.items()}
        | {"support_vectors": model.support_vectors}
    )


def _inputs(node: Any) -> list[str]:
    """The inputs of a node, including those of its subgraphs."""
    inside = [attribute.g for attribute in node.attribute if attribute.HasField("g")]
    return list(node.input) + [
        name for graph in inside for inner in graph.node for name in _inputs(inner)
    ]


def _tensor(name: str, values: np.ndarray) -> Any:
    from onnx import numpy_helper

    return numpy_helper.from_array(
        values.astype(object) if values.dtype.kind == "U" else values, name
    )


def _metadata(model: Model) -> dict[str, str]:
    facts = {
        "kernel": dict(model.kernel),
        "classes": list(model.classes),
        "n_support": model.n_support,
        "scaling": model.scaling.kind if model.scaling else None,
        "calibration": model.calibration.method if model.calibration else None,
        **{key: value for key, value in model.about.items() if key != "feature_names"},
        "feature_names": model.about.get("feature_names"),
    }
    return {
        key: value if isinstance(value, str) else json.dumps(value)
        for key, value in facts.items()
        if value is not None
    }
