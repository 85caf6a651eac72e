"""What the ONNX standard forbids, found before a model is read: one ValueError with the node and the reason.

Arity, names and types of attributes come from the standard's own schemas, which the package ``onnx`` has. What these leave open stands
in the tables here: texts with a fixed choice, numbers that must be positive.
"""

from ... import check
from .. import budget

__all__ = ["MOST_AXES", "called", "checked", "dimensions", "label"]

MOST_AXES = 64  # of a NumPy array
_DEEPEST = 100  # functions that call functions

_WORDS: dict = {
    "auto_pad": ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"),
    "coordinate_transformation_mode": (
        "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize",
        "tf_half_pixel_for_nn", "output_half_pixel",
    ),
    "nearest_mode": ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil", ""),
    "keep_aspect_ratio_policy": ("stretch", "not_larger", "not_smaller"),
    "approximate": ("none", "tanh"),
    ("BitShift", "direction"): ("LEFT", "RIGHT"),
    **{(op, "direction"): ("forward", "reverse", "bidirectional") for op in ("RNN", "LSTM", "GRU")},
    **{(op, "reduction"): ("none", "add", "mul", "max", "min") for op in ("ScatterElements", "ScatterND")},
    **{(op, "mode"): ("DCR", "CRD") for op in ("DepthToSpace", "SpaceToDepth")},
    **{(op, "mode"): ("nearest", "linear", "bilinear", "cubic") for op in ("Resize", "Upsample")},
    ("Pad", "mode"): ("constant", "reflect", "edge", "wrap"),
}  # fmt: skip
_FLAGS = ("fmod", "is_causal", "keepdims", "noop_with_empty_axes", "transA", "transB", "count_include_pad", "ceil_mode",
          "exclusive", "reverse", "select_last_index", "largest", "sorted", "linear_before_reset", "input_forget",
          "antialias", "layout", "normalize_variance", "saturate")  # fmt: skip
_POSITIVE = ("strides", "dilations", "kernel_shape", "group", "num_groups", "blocksize", "hidden_size", "num_outputs")


def called(node):
    """The name of a node, else that of its first output."""
    return node.name or (node.output[0] if node.output else "")


def label(node):
    """Operator and name of a node, for messages."""
    return check.printable(f"{node.op_type} {called(node)!r}", lines=False)


def dimensions(tensor, what):
    """The dimensions of a TensorProto; ValueError if there are too many of them, or one is negative."""
    if len(tensor.dims) > MOST_AXES:
        raise ValueError(f"{what} has {len(tensor.dims)} axes; at most {MOST_AXES} are supported")
    if any(d < 0 for d in tensor.dims):
        raise ValueError(f"{what} has the shape {tuple(tensor.dims)}; a dimension must not be negative")
    return tuple(tensor.dims)


def checked(proto):
    """{(domain, name, overload): function} of a model. ValueError for what the standard forbids, and for functions that stand for more
    nodes than the budget of the import allows."""
    versions = {d.domain: d.version for d in proto.opset_import}
    functions = {(f.domain, f.name, f.overload): f for f in proto.functions}
    if len(functions) < len(proto.functions):
        raise ValueError("two functions of the model have one name")
    _graph(proto.graph, set(), versions, functions, "the model")
    for f in proto.functions:
        _nodes(f.node, set(f.input), versions | {d.domain: d.version for d in f.opset_import}, functions)
    _count(proto.graph, functions)
    return functions


def _once(names, what):
    seen = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{what} {name!r} is there twice")
        seen.add(name)
    return seen


def _graph(graph, outer, versions, functions, where):
    """Checks a graph, whose nodes may read the names `outer`, and adds its own names to them."""
    if graph.sparse_initializer:
        raise ValueError(f"{where} has sparse weights, which are not supported; store them as ordinary tensors")
    weights = _once((t.name for t in graph.initializer), f"a weight of {where},")
    for t in graph.initializer:
        dimensions(t, f"weight {t.name!r}")
    names = outer | _once((i.name for i in graph.input), f"an input of {where},") | weights
    made = _nodes(graph.node, names, versions, functions, {i.name for i in graph.input} | weights)
    if not graph.output:
        raise ValueError(f"{where} has no outputs")
    for o in graph.output:
        if o.name not in made:
            raise ValueError(f"{where} says that {o.name!r} is an output, but no node makes it")


def _nodes(nodes, names, versions, functions, own=None):
    """All names that are known behind a list of nodes."""
    names, own = set(names), set(names if own is None else own)
    later = {o for node in nodes for o in node.output}
    for node in nodes:
        budget.node(0)
        for i in node.input:
            if i and i not in names:
                raise ValueError(
                    f"{label(node)} reads {i!r}, which "
                    + ("is made behind it: nodes must stand in the order of computation, without cycles" if i in later else "nothing makes")
                )
        local = functions.get((node.domain, node.op_type, node.overload))
        if local is None and node.domain in ("", "ai.onnx"):
            _operator(node, versions.get("", versions.get("ai.onnx", 1)))
        elif local is not None and (len(node.input) > len(local.input) or len(node.output) > len(local.output)):
            raise ValueError(f"{label(node)} has {len(node.input)} inputs and {len(node.output)} outputs; the model's "
                             f"function has {len(local.input)} and {len(local.output)}")  # fmt: skip
        _attributes(node)
        for a in node.attribute:
            for g in [a.g] if a.HasField("g") else a.graphs:
                _graph(g, names, versions, functions, f"the graph {a.name!r} of {label(node)}")
                if node.op_type == "If" and len(g.output) < len(node.output):
                    raise ValueError(f"{label(node)} has {len(node.output)} outputs, its {a.name!r} {len(g.output)}")
        for o in node.output:
            if o in own:
                raise ValueError(f"{label(node)} makes {o!r}, which is there already: every name has one maker")
            own.update([o] if o else [])
        names.update(o for o in node.output if o)
    return names


def _operator(node, version):
    """Inputs, outputs and attributes as the standard's schema has them; unknown operators are reported by the importer."""
    from onnx import defs

    try:
        schema = defs.get_schema(node.op_type, version, "")
    except defs.SchemaError:
        return
    for what, given, least, most in (("inputs", node.input, schema.min_input, schema.max_input),
                                     ("outputs", node.output, schema.min_output, schema.max_output)):  # fmt: skip
        if not least <= len(given) <= most:
            raise ValueError(f"{label(node)} has {len(given)} {what}; {node.op_type} has {least if least == most else f'{least} to {most}'}")
    for i, (name, formal) in enumerate(zip(node.input, schema.inputs)):
        if not name and formal.option == defs.OpSchema.FormalParameterOption.Single:
            raise ValueError(f"{label(node)} lacks input {i}, {formal.name!r}")
    given = {a.name: a for a in node.attribute}
    for name, a in given.items():
        wanted = schema.attributes.get(name)
        if wanted is None:
            raise ValueError(f"{label(node)} has the attribute {name!r}, which {node.op_type} does not have in version {version}")
        if a.type and int(wanted.type.value) != a.type:
            raise ValueError(f"attribute {name!r} of {label(node)} has the wrong type; it must be of type {wanted.type.name}")
    for name, wanted in schema.attributes.items():
        if wanted.required and name not in given:
            raise ValueError(f"{label(node)} lacks its attribute {name!r}")


def _attributes(node):
    """Texts, choices and positive numbers of a node's attributes."""
    _once((a.name for a in node.attribute), f"{label(node)}: attribute")
    for a in node.attribute:
        if a.ref_attr_name:
            continue
        for text in [a.s, *a.strings]:
            try:
                text.decode()
            except UnicodeDecodeError:
                raise ValueError(f"attribute {a.name!r} of {label(node)} is {text[:40]!r}, which is no text in UTF-8") from None
        words = _WORDS.get((node.op_type, a.name), _WORDS.get(a.name))
        if words and a.HasField("s") and a.s.decode() not in words:
            raise ValueError(f"attribute {a.name!r} of {label(node)} is {a.s.decode()[:40]!r}; it must be one of {', '.join(filter(None, words))}")
        if a.name in _FLAGS and a.i not in (0, 1):
            raise ValueError(f"attribute {a.name!r} of {label(node)} is {a.i}; it must be 0 or 1")
        if a.name in _POSITIVE:
            for v in [a.i] if a.HasField("i") else a.ints:
                if v <= 0:
                    raise ValueError(f"attribute {a.name!r} of {label(node)} is {v}; it must be at least 1")


def _calls(nodes):
    """The keys of all nodes, those of branches and loop bodies included."""
    todo = list(nodes)
    while todo:
        node = todo.pop()
        yield node.domain, node.op_type, node.overload
        for a in node.attribute:
            for g in [a.g] if a.HasField("g") else a.graphs:
                todo += g.node


def _count(graph, functions):
    """Raises if functions call themselves, or if a graph with its functions taken apart has more nodes than the budget allows."""
    inside = {key: list(_calls(f.node)) for key, f in functions.items()}
    size: dict = {}  # of a function: (nodes, how deep functions call each other in it)
    for first in functions:
        todo = [first]
        while todo:
            key = todo[-1]
            waiting = [k for k in inside[key] if k in functions and k not in size]
            if not waiting:
                parts = [size[k] for k in inside[key] if k in functions]
                size[key] = len(inside[key]) + sum(n for n, _ in parts), 1 + max((d for _, d in parts), default=0)
                todo.pop()
            elif any(k in todo for k in waiting) or key in waiting:
                raise ValueError(f"function {key[1]!r} of the model calls itself, by way of others or directly")
            else:
                todo.append(waiting[0])
                if len(todo) > _DEEPEST:
                    raise ValueError(f"functions of the model call each other more than {_DEEPEST} deep")
    budget.nodes_fit(sum(1 + size.get(k, (0, 0))[0] for k in _calls(graph.node)))
