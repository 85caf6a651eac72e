"""From a fused module to the graph file: nodes in the order of execution, storage ids, constants taken out as
parameters."""

import json

import numpy as np

from .. import _core
from ..error import TVMValueError
from .expr import Call, Constant, Function, If, Tuple, TupleGetItem, Var, post_order
from .extract import unique
from .packing import form_of
from .ty import TensorType, TupleType

__all__ = ["GraphCode", "generate", "side_by_side"]

_NULL, _CALL, _NOP, _JOIN = 0, 1, 2, 3


def facts(program, call):
    """What reports say of a call, as attributes that executors skip: its operations, where its schedule comes from, the layer of
    the user's model that it belongs to, and what its products are of where they may be on tensor cores: "float16", "tf32", ..."""
    found = {"flops": f"{program.dag.flop_ct:.0f}", "schedule": program.schedule}
    if program.products:
        found["products"] = program.products
    return {**found, "layer": str(call.span)} if call.span else found


class GraphCode:
    """The result: `json` (the graph file), `params` (name -> NumPy array), `bytes` (planned memory), `input_names`, `forms`
    (name -> (the original, how the parameter is made of it), as `GraphExecutorFactoryModule.forms`)."""

    def __init__(self, text, params, nbytes, input_names, forms=None):
        self.json, self.params, self.bytes, self.input_names, self.forms = text, params, nbytes, input_names, forms or {}


class _Generator:
    def __init__(self, programs):
        self.programs = programs  # id of call -> (program or None for a reshape, kernel)
        self.nodes, self.types, self.row, self.plan = [], [], [0], []
        self.entries, self.params, self.forms, self.used, self.constants = {}, {}, {}, set(), {}

    def add(self, node, kind, inputs, types):
        """Appends a node; returns its entries."""
        node["inputs"] = [[self.node_of[i], i - self.row[self.node_of[i]], 0] for i in inputs]
        first = self.row[-1]
        self.nodes.append(node)
        self.plan.append((kind, list(inputs), len(types)))
        self.types += types
        self.row.append(first + len(types))
        out = list(range(first, first + len(types)))
        for i in out:
            self.node_of[i] = len(self.nodes) - 1
        return out

    def constant(self, e, packing=None):
        """The entries of a constant, packed if `packing` says how."""
        key = (id(e), packing)
        if key not in self.constants:
            data, t = np.asarray(e.data, order="C"), e.checked_type
            original, form = form_of(e, packing)
            if packing is not None:
                data = packing(data)
                t = TensorType(data.shape, t.dtype)
            self.constants[key] = self.null(f"p{len(self.params)}", t)
            self.params[self.nodes[-1]["name"]] = data
            if form:
                self.forms[self.nodes[-1]["name"]] = original, form
        return self.constants[key]

    def entry(self, e):
        """The entries of an expression; constants get their node when they are first used."""
        return self.constant(e) if isinstance(e, Constant) else self.entries[id(e)]

    def null(self, name, t):
        if isinstance(t, TupleType):
            raise TVMValueError(f"parameter {name!r} is a tuple; a compiled network takes tensors")
        return self.add({"op": "null", "name": unique(self.used, name)}, _NULL, [], [t])

    def call(self, e):
        program = self.programs.get(id(e))
        if program is None:
            raise TVMValueError(f"a call of {e.op!r} is left in the network; only fused functions can be compiled")
        t = e.checked_type
        types = list(t.fields) if isinstance(t, TupleType) else [t]
        name = unique(self.used, program.name)
        if program.reshape:
            return self.kernel(unique(self.used, "reshape_nop"), "__nop", _NOP, self.reshaped(e), types)
        if program.join is not None:
            parts = [i for a in e.args for i in self.entry(a)]
            return self.kernel(unique(self.used, "join"), "__join", _JOIN, parts, types, axis=program.join)
        layouts = {program.arg_index[k]: packing for k, packing in program.relaid.items()}
        flat = []
        for a in e.args:
            flat += self.constant(a, layouts[len(flat)]) if len(flat) in layouts else self.entry(a)
        return self.kernel(name, program.name, _CALL, [flat[k] for k in program.arg_index], types, **facts(program, e))

    def kernel(self, name, function, kind, inputs, types, **more):
        attrs = {"func_name": function, "flatten_data": "0", "num_inputs": str(len(inputs)), "num_outputs": str(len(types)), **more}
        return self.add({"op": "tvm_op", "name": name, "attrs": attrs}, kind, inputs, types)

    def run(self, func):
        self.node_of = {}
        for p in func.params:
            self.entries[id(p)] = self.null(p.name_hint, p.checked_type)
        inputs = [n["name"] for n in self.nodes]
        for e in post_order(func.body):
            if isinstance(e, Var):
                if id(e) not in self.entries:
                    raise TVMValueError(f"variable {e.name_hint!r} is no parameter of the network")
            elif isinstance(e, Constant):
                continue
            elif isinstance(e, Tuple):
                self.entries[id(e)] = [i for f in e.fields for i in self.entry(f)]
            elif isinstance(e, TupleGetItem):
                self.entries[id(e)] = self.field(e)
            elif isinstance(e, Call):
                self.entries[id(e)] = self.call(e)
            elif isinstance(e, If):
                raise TVMValueError("the network branches on data (if); the graph executor runs straight-line networks "
                                    "only")  # fmt: skip
            elif not isinstance(e, Function):
                raise TVMValueError(f"a {type(e).__name__} cannot be compiled")
        return inputs

    def reshaped(self, e):
        """The entry that a function of nothing but reshapes reads: its argument, or a field of it."""
        source = e.op.body
        while isinstance(source, Call):
            source = source.args[0]
        fields = []
        while isinstance(source, TupleGetItem):
            fields.append(source)
            source = source.tuple_value
        at = self.entry(e.args[0])
        for f in reversed(fields):
            at = self.part(at, f)
        return at

    def field(self, e):
        return self.part(self.entry(e.tuple_value), e)

    def part(self, entries, e):
        """Those of a tuple's entries that belong to its field `e`."""

        def width(t):
            return sum(map(width, t.fields)) if isinstance(t, TupleType) else 1

        widths = [width(t) for t in e.tuple_value.checked_type.fields]
        begin = sum(widths[: e.index])
        return entries[begin : begin + widths[e.index]]


def generate(func, programs, device_type):
    """The graph of `func` (the fused ``main``); `programs` maps the id of every call to its program."""
    g = _Generator(programs)
    inputs = g.run(func)
    heads = g.entry(func.body)
    storage, sizes = _core.graph_plan(g.plan, [t.nbytes for t in g.types], heads)
    attrs = {"dltype": ["list_str", [t.dtype for t in g.types]], "device_index": ["list_int", [device_type] * len(g.types)],
             "storage_id": ["list_int", storage], "shape": ["list_shape", [list(t.shape) for t in g.types]]}  # fmt: skip
    graph = {"nodes": g.nodes, "arg_nodes": [i for i, n in enumerate(g.nodes) if n["op"] == "null"],
             "heads": [[g.node_of[h], h - g.row[g.node_of[h]], 0] for h in heads], "attrs": attrs, "node_row_ptr": g.row}  # fmt: skip
    return GraphCode(json.dumps(graph), g.params, sum(sizes), inputs, g.forms)


_KINDS = {"__nop": _NOP, "__join": _JOIN}


def side_by_side(text):
    """The graph file `text` for kernels that run beside others where they need nothing of each other: storages that allow it, and the
    wish that they do. None if each needs the one before it."""
    g = json.loads(text)
    row, attrs = g["node_row_ptr"], g["attrs"]
    kinds = [_NULL if n["op"] == "null" else _KINDS.get(n["attrs"]["func_name"], _CALL) for n in g["nodes"]]
    before, last, chain = [], None, True  # sets of nodes, as bits
    for i, (node, kind) in enumerate(zip(g["nodes"], kinds)):
        before.append(0)
        for k, *_ in node["inputs"]:
            before[i] |= before[k] | 1 << k
        if kind == _CALL:
            chain = chain and (last is None or before[i] >> last & 1)
            last = i
    if chain:
        return None
    plan = [(kind, [row[k] + out for k, out, *_ in n["inputs"]], row[i + 1] - row[i]) for i, (n, kind) in enumerate(zip(g["nodes"], kinds))]
    sizes = [TensorType(shape, dtype).nbytes for shape, dtype in zip(attrs["shape"][1], attrs["dltype"][1])]
    attrs["storage_id"][1], _ = _core.graph_plan(plan, sizes, [row[k] + out for k, out, *_ in g["heads"]], True)
    return json.dumps({**g, "branches": True})
