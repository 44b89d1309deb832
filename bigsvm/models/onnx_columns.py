"""The columns of a table as inputs of an ONNX graph, which encodes text and missing values.

ONNX Runtime rejects what `predict` rejects: a missing value or unknown category without a
rule in the encoding becomes an index beyond the end of a lookup table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.core.errors import UserError
from bigsvm.core.messages import quoted
from bigsvm.readers.chosen_columns import MISSING
from bigsvm.tables.encoding import MISSING_CATEGORY, Column, Encoding

if TYPE_CHECKING:
    from onnx import ModelProto

ML_DOMAIN, ML_OPSET = "ai.onnx.ml", 2
ROWS_INPUT = "X"
PREFIX = "bigsvm:"  # of all inner names, so that a column may have any name


def take_columns(made: ModelProto, encoding: Encoding) -> None:
    """Replace the input X of a graph by an input (rows, 1) for each column: double, or string."""
    from onnx import TensorProto, helper

    graph = made.graph
    outputs = {output.name for output in graph.output}
    for name in encoding.names:
        if name in outputs:
            raise UserError(
                f"column {quoted(name)}: an output of the ONNX model has this name; rename the "
                "column in the training data"
            )
    _prefix_names(graph, outputs)
    del graph.input[:]
    nodes: list[Any] = []
    blocks = []
    for k, column in enumerate(encoding.columns):
        text = column.kind == "category"
        kind = TensorProto.STRING if text else TensorProto.DOUBLE
        graph.input.append(helper.make_tensor_value_info(column.name, kind, ["rows", 1]))
        name = f"{PREFIX}column {k}"
        made_of = _indicators(column, encoding, name) if text else _numbers(column, name)
        nodes += made_of[0]
        graph.initializer.extend(made_of[1])
        blocks += made_of[2]
    nodes.append(helper.make_node("Concat", blocks, [PREFIX + ROWS_INPUT], axis=1))
    nodes += graph.node
    del graph.node[:]
    graph.node.extend(nodes)
    made.opset_import.append(helper.make_opsetid(ML_DOMAIN, ML_OPSET))


def _prefix_names(graph: Any, kept: set[str]) -> None:
    """Rename all values of a graph and of its subgraphs, except those in `kept`."""

    def renamed(name: str) -> str:
        return name if not name or name in kept else PREFIX + name

    for node in graph.node:
        node.input[:] = [renamed(name) for name in node.input]
        node.output[:] = [renamed(name) for name in node.output]
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _prefix_names(attribute.g, kept)
    for value in (*graph.initializer, *graph.input, *graph.output, *graph.value_info):
        value.name = renamed(value.name)


def _numbers(column: Column, name: str) -> tuple[list[Any], list[Any], list[str]]:
    """Nodes, constants, and the blocks of features of a column of numbers; nan is a gap."""
    from onnx import TensorProto, helper, numpy_helper

    gaps, features = f"{name} gaps", f"{name} features"
    nodes = [helper.make_node("IsNaN", [column.name], [gaps])]
    if column.fill is None:  # 0, or beyond the end of a table of one value
        constant = numpy_helper.from_array(np.zeros(1), f"{name} none")
        nodes += [
            helper.make_node("Cast", [gaps], [f"{name} row"], to=TensorProto.INT64),
            helper.make_node("Gather", [constant.name, f"{name} row"], [f"{name} checked"]),
            helper.make_node("Add", [column.name, f"{name} checked"], [features]),
        ]
    else:
        constant = numpy_helper.from_array(np.array(column.fill, np.float64), f"{name} fill")
        nodes.append(helper.make_node("Where", [gaps, constant.name, column.name], [features]))
    blocks = [features]
    if column.indicator:
        blocks.append(f"{name} indicator")
        nodes.append(helper.make_node("Cast", [gaps], [blocks[-1]], to=TensorProto.DOUBLE))
    return nodes, [constant], blocks


def _indicators(
    column: Column, encoding: Encoding, name: str
) -> tuple[list[Any], list[Any], list[str]]:
    """The same for a column of categories: their positions, then rows of a table of indicators."""
    from onnx import TensorProto, helper, numpy_helper

    width = len(column.categories)
    none_of_them, refused = width, width + 1  # the last row of the table, and beyond it
    place_of = {category: k for k, category in enumerate(column.categories)}
    absent = none_of_them if encoding.missing not in ("error", "drop") else refused
    absent = place_of.get(MISSING_CATEGORY, absent)
    for text in MISSING:
        for spelled in (text, text.upper(), text.capitalize(), "NaN"):
            place_of.setdefault(spelled, absent)
    table = np.eye(width + 1, width, dtype=np.uint8)
    constant = numpy_helper.from_array(table, f"{name} table")
    nodes = [
        helper.make_node(
            "LabelEncoder", [column.name], [f"{name} place"], domain=ML_DOMAIN,
            keys_strings=list(place_of), values_int64s=list(place_of.values()),
            default_int64=none_of_them if encoding.unseen == "ignore" else refused,
        ),
        helper.make_node("Squeeze", [f"{name} place", f"{name} axis"], [f"{name} row"]),
        helper.make_node("Gather", [constant.name, f"{name} row"], [f"{name} bytes"]),
        helper.make_node("Cast", [f"{name} bytes"], [f"{name} features"], to=TensorProto.DOUBLE),
    ]  # fmt: skip
    axis = numpy_helper.from_array(np.array([1]), f"{name} axis")
    return nodes, [constant, axis], [f"{name} features"]
