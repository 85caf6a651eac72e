"""Loop and Scan of ONNX with a number of steps that is known: their body is read once per step, within the budget of the import."""

from ...error import OpNotImplemented
from .. import budget, op as relay
from . import common as c
from .onnx_check import label
from .values import array, known, shape_of

__all__ = ["BODIES", "unrolled"]

BODIES = ("Loop", "Scan")


def _attribute(node, name, default=None):
    found = next((a for a in node.attribute if a.name == name), None)
    return default if found is None else found.g if name == "body" else list(found.ints) if found.ints else found.i


def unrolled(read, node, values, opset):
    """The results of a node of BODIES. ``read(body, values)`` gives those of its body, whose own names are in `values`."""
    body = _attribute(node, "body")
    inputs = [values.get(i) if i else None for i in node.input]

    def step(given):
        budget.node()
        return read(body, {**values, **dict(zip((i.name for i in body.input), given))})

    if node.op_type == "Loop":
        return _loop(node, step, inputs, len(body.output))
    return _scans_of_a_batch(node, step, inputs) if opset < 9 else _scan(node, step, inputs)


def _number(e, what, node):
    if not known(e):
        raise OpNotImplemented(f"Loop {label(node)} (control flow): its {what} is computed from the data of the model; "
                               "export the model for a fixed number of steps")  # fmt: skip
    return e.data.item()


def _loop(node, step, inputs, count):
    most = None if inputs[0] is None else int(_number(inputs[0], "trip count", node))
    condition = True if len(inputs) < 2 or inputs[1] is None else inputs[1]
    carried, rows, i = inputs[2:], [], 0
    while (most is None or i < most) and (condition is True or _number(condition, "condition", node)):
        condition, *out = step([array(i, "int64"), array(True) if condition is True else condition, *carried])
        carried, row = out[: len(carried)], out[len(carried) :]
        rows.append(row)
        i += 1
    if not rows and count - 1 > len(carried):
        raise OpNotImplemented(f"{label(node)} makes no step, and so no elements: tensors without elements are not supported")
    return [*carried, *(relay.stack(list(r), 0) for r in zip(*rows))]


def _scan(node, step, inputs):
    many = _attribute(node, "num_scan_inputs")
    states, data = inputs[: len(inputs) - many], inputs[len(inputs) - many :]
    axes = _attribute(node, "scan_input_axes", [0] * many)
    back = _attribute(node, "scan_input_directions", [0] * many)
    axes = [a % len(shape_of(x)) for a, x in zip(axes, data)]
    steps, rows = shape_of(data[0])[axes[0]], []
    for i in range(steps):
        parts = [c.element(x, a, steps - 1 - i if b else i) for x, a, b in zip(data, axes, back)]
        out = step([*states, *parts])
        states = out[: len(states)]
        rows.append(out[len(states) :])
    columns = list(zip(*rows))
    places = _attribute(node, "scan_output_axes", [0] * len(columns))
    turned = _attribute(node, "scan_output_directions", [0] * len(columns))
    ends = [relay.stack(list(r[::-1] if b else r), a % (len(shape_of(r[0])) + 1)) for r, a, b in zip(columns, places, turned)]
    return [*states, *ends]


def _scans_of_a_batch(node, step, inputs):
    """Version 8: the first input says how long sequences are, and the first axis of all others is that of a batch."""
    if inputs[0] is not None:
        raise OpNotImplemented(f"{label(node)}: sequences of different lengths are not supported")
    batch = shape_of(inputs[1])[0]
    every = [_scan(node, step, [c.element(x, 0, b) for x in inputs[1:]]) for b in range(batch)]
    return [relay.stack(list(column), 0) for column in zip(*every)]


