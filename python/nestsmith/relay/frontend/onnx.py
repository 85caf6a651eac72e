"""ONNX files and models become networks.

The package ``onnx`` reads the file and knows the standard's own definitions: an operator without a converter that the standard
defines by other operators is replaced by that definition, as a function of the model is by its body.
"""

import math
import os

import numpy as np

from ...check import dtype_bytes, integer, printable
from ...error import OpNotImplemented
from ...numerics import is_float
from .. import budget
from ..expr import Constant, Function, Tuple, free_vars, rewrite, var
from ..module import IRModule
from .compare import Comparison
from .onnx_check import MOST_AXES, called, checked, dimensions, label
from .onnx_loops import BODIES, unrolled
from .onnx_ops import CONVERTERS
from .values import Node, Unsupported, array, as_list, dtype_of, folded, known, named

__all__ = ["fixed_shapes", "from_onnx", "input_names", "load"]

_CONTROL = {"SequenceMap"}
_RANDOM = {"Bernoulli", "Multinomial", "RandomNormalLike", "RandomUniformLike"}


def from_onnx(model, shape=None, dtype="float32", opset=None, freeze_params=True, check=False, *, limits=None):
    """A network from an ONNX model.

    Parameters
    ----------
    model : str, os.PathLike, bytes or onnx.ModelProto
        The model, or the file; weights in files beside it are read, too.
    shape : dict of str to tuple of int or int, optional
        Shapes of inputs, and sizes that the model calls by a name (``{"batch": 8}``). Needed where the shape of an input has names or
        gaps: shapes are fixed while importing.
    dtype : str or dict of str to str
        Element types of inputs that the model does not give.
    opset : int, optional
        Version of the operator set, instead of the one that the model says.
    freeze_params : bool
        Weights become constants of the network, and `params` is empty. Otherwise they are variables under the names that they
        have in the model, with their values in `params`.
    check : bool, list of arrays or dict of str to array
        Runs onnxruntime and the imported network on the processor, compares all nodes with each other, and raises if one differs.
        The inputs are random (whole numbers are 0 and 1), or the given ones.
    limits : dict of str to float, optional
        What importing may take: ``"bytes"`` of values that depend on constants alone (default 2^30, and eight times the model's own
        weights on top), ``"nodes"`` (1,000,000, with functions of the model taken apart), ``"seconds"`` (600). The environment variables
        NESTSMITH_IMPORT_BYTES, NESTSMITH_IMPORT_NODES and NESTSMITH_IMPORT_SECONDS are used for those that are not given.

    Returns
    -------
    mod : IRModule
    params : dict of str to numpy.ndarray

    Raises
    ------
    OpNotImplemented
        For everything in the model that cannot be imported, with names and counts of nodes, before anything is done.
    ValueError
        If the file is damaged or not what the standard allows, its weights are missing, the shape of an input is not known, importing
        takes more than `limits`, or the installed package onnx does not know the version of the operators.
    ImportMismatch
        If `check` finds a node that differs.
    """
    with budget.importing(limits):
        try:
            return _from_onnx(model, shape, dtype, opset, freeze_params, check)
        except (OpNotImplemented, ValueError) as e:  # texts of a model are not for the terminal to obey
            if e.args and isinstance(e.args[0], str):
                e.args = printable(e.args[0]), *e.args[1:]
            raise


def _from_onnx(model, shape, dtype, opset, freeze_params, check):
    proto = load(model)
    opset = None if opset is None else integer("opset", opset, 1)
    for d in proto.opset_import:
        if d.domain in ("", "ai.onnx"):
            d.version = _version(d.version, opset)
    graph = _Graph(proto)
    graph.check()
    mod, params = graph.network(fixed_shapes(shape), dtype, freeze_params)
    if check is not False:
        graph.compare(mod, params, None if check is True else check)
    return mod, params


def _version(said, given):
    """The version of the operator set: that of the model, or the given one. ValueError if the package onnx does not know it: what its
    operators mean is not known then."""
    import onnx

    newest = onnx.defs.onnx_opset_version()
    there = f"the installed onnx {onnx.__version__} knows versions 1 to {newest} of the operators"
    if given is not None and given > newest:
        raise ValueError(f"opset is {given}; {there}")
    if given is None and not 0 < said <= newest:
        raise ValueError(f"the model says version {said} of its operators; {there}: update it, or give opset= if the model uses nothing newer")
    return said if given is None else given


def load(model):
    """The ModelProto of a path, bytes or a ModelProto, of which it is a copy. Raises as `from_onnx` does."""
    try:
        import onnx
    except ImportError as e:
        raise ImportError("ONNX models are read by the package onnx: pip install nestsmith[onnx]") from e
    try:
        if isinstance(model, (str, os.PathLike)):
            proto = onnx.load(os.fspath(model))
        else:
            proto = onnx.load_model_from_string(model) if isinstance(model, (bytes, bytearray)) else model
        if not isinstance(proto, onnx.ModelProto):
            raise TypeError(f"model is {model!r:.80}; it must be a path, bytes or an onnx.ModelProto")
        if not proto.HasField("graph"):
            raise ValueError("it has no graph; it is empty or incomplete")
        if not proto.opset_import and proto.ir_version >= 3:  # the last words of a file, without which it is read as version 1
            raise ValueError("it does not say the version of its operators; it is incomplete")
        copy = onnx.ModelProto()
        copy.CopyFrom(proto)
        return copy
    except (FileNotFoundError, IsADirectoryError, PermissionError, TypeError, MemoryError):
        raise
    except Exception as e:  # protobuf's and onnx's own kinds
        what = os.fspath(model) if isinstance(model, (str, os.PathLike)) else "model"
        raise ValueError(f"{what} is no readable ONNX model: {e}") from e


def fixed_shapes(shape):
    """The shapes of inputs that a user gives by name, as tuples of ints, and sizes that have names; TypeError or ValueError if they
    are neither."""
    if not isinstance(shape or {}, dict):
        raise TypeError(f"shape is {shape!r}; it must be a dictionary from names of inputs to tuples of integers")
    out = {}
    for name, dims in (shape or {}).items():
        if not isinstance(dims, str) and np.ndim(dims) == 0:
            out[name] = integer(f"shape[{name!r}]", dims, 0)
            continue
        if isinstance(dims, str) or not isinstance(dims, (tuple, list, np.ndarray)):
            raise TypeError(f"shape[{name!r}] is {dims!r}; it must be a tuple of integers")
        out[name] = tuple(integer(f"shape[{name!r}]", d, 0) for d in dims)
    return out


def input_names(proto):
    """Names of the inputs of a model, without its weights."""
    weights = {t.name for t in proto.graph.initializer}
    return [i.name for i in proto.graph.input if i.name not in weights]


def _name(node):
    """What a node's operator is called here."""
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}::{node.op_type}"


def _attributes(node):
    """The attributes of a node as Python values."""
    import onnx

    out = {}
    for a in node.attribute:
        if a.ref_attr_name:
            continue
        v = onnx.helper.get_attribute_value(a)
        if isinstance(v, bytes):
            v = v.decode()
        elif isinstance(v, onnx.TensorProto):
            v = _array(v) if v.data_type != onnx.TensorProto.BFLOAT16 else _constant(v)
        elif isinstance(v, (list, tuple)) and v and isinstance(v[0], bytes):
            v = [s.decode() for s in v]
        out[a.name] = v
    for key in ("to", "dtype", "output_dtype"):
        if out.get(key) == 0:  # none
            del out[key]
        elif isinstance(out.get(key), int) and node.op_type != "Constant":
            out[key] = _dtype(out[key], node.op_type)
    return out


def _dtype(code, where):
    """Our name of an element type of ONNX."""
    import onnx

    try:
        name = onnx.TensorProto.DataType.Name(code).lower()
    except ValueError:
        raise ValueError(f"{where}: there is no element type {code}") from None
    name = {"float": "float32", "double": "float64"}.get(name, name)
    if name not in ("float16", "bfloat16", "float32", "float64", "bool") and not name.startswith(("int", "uint")):
        raise OpNotImplemented(f"{where}: element type {name} is not supported")
    if name in ("int4", "uint4", "int2", "uint2"):
        raise OpNotImplemented(f"{where}: element type {name} is not supported")
    return name


def _array(tensor):
    import onnx

    what = f"tensor {tensor.name!r}"
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        raise ValueError(f"the values of {what} are in a file beside the model, and it is not known where that is: give the model's path")
    kind, shape = _dtype(tensor.data_type, what), dimensions(tensor, what)
    try:
        data = onnx.numpy_helper.to_array(tensor)
    except Exception as e:
        raise ValueError(f"the values of {what}, whose shape is {shape}, cannot be read: {e}") from e
    return np.asarray(data).astype("float32") if kind == "bfloat16" else data


def _constant(tensor):
    """A tensor as a constant. NumPy has no bfloat16: `_array` gives float32 for it."""
    import onnx

    return array(_array(tensor), "bfloat16" if tensor.data_type == onnx.TensorProto.BFLOAT16 else None)


class _Graph:
    """A model while it is read."""

    def __init__(self, proto):
        self.proto = proto
        self.opsets = {d.domain or "ai.onnx": d.version for d in proto.opset_import}
        self.functions = checked(proto)
        self.values, self.weights, self.inputs = {}, {}, []
        self.told = {}  # of functions: what cannot be imported in them, by what they are called with
        self.made = []  # (label, name of the value, expression) of every node

    # ---- what is there ----

    def version(self, domain=""):
        return self.opsets.get(domain or "ai.onnx", 1)

    def definition(self, node, types=()):
        """(attributes that are left out, body) of a function of the model, or of the standard's definition of an operator; None."""
        import onnx

        local = self.local(node)
        if local is not None:
            return {a.name: a for a in local.attribute_proto}, local
        domain = "" if node.domain == "ai.onnx" else node.domain
        if domain not in ("", "ai.onnx.preview") or _name(node) in CONVERTERS:
            return None
        try:
            schema = onnx.defs.get_schema(node.op_type, self.version(domain), domain)
        except onnx.defs.SchemaError:
            return None
        body = onnx.FunctionProto()
        if schema.has_function:
            body.CopyFrom(schema.function_body)
        elif schema.has_context_dependent_function and types:
            text = schema.get_context_dependent_function(node.SerializeToString(), [t.SerializeToString() for t in types])
            body.ParseFromString(text)
        else:
            return True if schema.has_context_dependent_function else None
        return {k: a.default_value for k, a in schema.attributes.items() if a.default_value.type}, body

    def local(self, node):
        """The function of the model that a node calls, or None."""
        return self.functions.get((node.domain, node.op_type, node.overload))

    def check(self):
        """Raises OpNotImplemented with all that cannot be imported."""
        self._missing(self.proto.graph, set()).check()

    def _missing_in(self, function, constant):
        """(what cannot be imported in a function of the model, its outputs that do not depend on data); `constant`: which inputs do not."""
        key = function.domain, function.name, function.overload, constant
        if key not in self.told:
            known = {name for name, yes in zip(function.input, constant) if yes}
            self.told[key] = self._missing(function, known), [o in known for o in function.output]
        return self.told[key]

    def _missing(self, graph, known):
        """What cannot be imported of a graph, or of a branch. Of an If that is still open both branches must have something: a network
        that never takes the one is none the worse. known: a set of the names of values that do not depend on the data; those of the graph
        are added."""
        missing = Unsupported("ONNX model", "register a converter with nestsmith.relay.frontend.converter")
        known.update(t.name for t in getattr(graph, "initializer", ()))
        for node in graph.node:
            budget.node(0)
            name, title = _name(node), called(node)
            function = self.local(node)
            if function is not None:
                found, constant = self._missing_in(function, tuple(i in known for i in node.input))
                for op, names in found.nodes.items():
                    missing.nodes[op] += [f"{inner} in {title}" for inner in names]
                known.update(o for o, yes in zip(node.output, constant) if yes)
                continue
            if name == "If":
                inside = [(a.g, set(known)) for a in node.attribute if a.HasField("g")]
                branches = [self._missing(branch, there).nodes for branch, there in inside]
                for branch, there in inside:
                    known.update(mine for mine, its in zip(node.output, branch.output) if its.name in there)
                for op, names in (row for found in branches if all(branches) for row in found.items()):
                    for inner in names:
                        missing.add(op, f"{inner} in a branch of If {title}")
                continue
            if name in BODIES:
                for op, names in (row for a in node.attribute if a.HasField("g") for row in self._missing(a.g, set(known)).nodes.items()):
                    for inner in names:
                        missing.add(op, f"{inner} in the body of {name} {title}")
                continue
            constant = all(i in known for i in node.input if i)
            if constant or name in ("Shape", "Size"):
                known.update(node.output)
            if name in CONVERTERS or self.definition(node) is not None or constant and _computable(node):
                continue
            missing.add(f"{name} (control flow)" if name in _CONTROL else name, title)
        return missing

    # ---- reading ----

    def network(self, shapes, dtype, freeze):
        graph = self.proto.graph
        for t in graph.initializer:
            budget.own(math.prod(dimensions(t, "a weight")) * dtype_bytes(_dtype(t.data_type, f"weight {t.name!r}")))
            self.values[t.name] = c = _constant(t)
            if dtype_of(c) != "bfloat16":  # whose values NumPy cannot hold in params
                self.weights[id(c)] = (t.name, c)
        given = self._given([i.name for i in graph.input if i.name not in self.values], shapes)
        for i in graph.input:
            if i.name not in self.values:
                self.values[i.name] = v = self._input(i, *given, dtype)
                self.inputs.append(v)
        self.nodes(graph.node, self.values, self.version(), [o.name for o in graph.output])
        made = [self.values[o.name] for o in graph.output]
        outs = [f for e in made for f in (e.fields if isinstance(e, Tuple) else [e])]
        body = outs[0] if len(outs) == 1 else Tuple(outs)
        return self._module(body, freeze)

    def _module(self, body, freeze):
        params, made = {}, {}

        def visit(old, new):
            if isinstance(old, Constant) and id(old) in self.weights:
                name, c = self.weights[id(old)]
                if name not in made:
                    made[name] = var(name, shape=c.data.shape, dtype=str(c.data.dtype))
                    params[name] = c.data
                return made[name]
            return new

        if not freeze:
            body = rewrite(body, visit)
        used = free_vars(body)
        return IRModule.from_expr(Function([*self.inputs, *(v for v in used if v not in self.inputs)], body)), params

    def _given(self, names, shapes):
        """What `shapes` says: shapes of inputs; sizes that it calls as the model does; sizes that follow from the shapes."""
        dims = {i.name: [d.dim_param for d in i.type.tensor_type.shape.dim] for i in self.proto.graph.input if i.name in names}
        known = dict.fromkeys(d for ds in dims.values() for d in ds if d)
        sizes = {k: v if isinstance(v, int) else v[0] for k, v in shapes.items()
                 if k in known and (isinstance(v, int) or k not in names and len(v) == 1)}  # fmt: skip
        for k, v in shapes.items():
            if isinstance(v, int) and k in names and k not in sizes:
                raise TypeError(f"shape[{k!r}] is {v}; it must be a tuple of integers")
        wrong = sorted(k for k in shapes if k not in names and k not in sizes)
        if wrong:
            sizes_named = f" and its open sizes {list(known)}" if known else ""
            raise ValueError(f"shape names {wrong}, but the model's inputs are {names}{sizes_named}")
        shapes = {k: v for k, v in shapes.items() if k not in sizes}
        follow = {d: size for name, given in shapes.items() for d, size in zip(dims[name], given) if d}
        return shapes, sizes, {**follow, **sizes}

    def _input(self, info, shapes, sizes, follow, dtype):
        t = info.type.tensor_type
        if len(t.shape.dim) > MOST_AXES:
            raise ValueError(f"input {info.name!r} has {len(t.shape.dim)} axes; at most {MOST_AXES} are supported")
        if not info.type.HasField("tensor_type"):
            raise OpNotImplemented(f"input {info.name!r} is no tensor (sequences, maps and optional values are not supported)")
        kind = _dtype(t.elem_type, f"input {info.name!r}") if t.elem_type else dtype if isinstance(dtype, str) else dtype[info.name]
        given = shapes.get(info.name)
        sizes = follow if given is None else sizes
        dims = [d.dim_value if d.HasField("dim_value") else sizes.get(d.dim_param, d.dim_param or "?") for d in t.shape.dim]
        if given is not None:
            # Exporters write 0 or -1 for a size that they leave open; 0 is what it says if nobody says another.
            fixed = [isinstance(d, int) and (d > 0 or not f.HasField("dim_value")) for d, f in zip(dims, t.shape.dim)]
            if t.HasField("shape") and (len(given) != len(dims) or any(f and d != g for f, d, g in zip(fixed, dims, given))):
                raise ValueError(f"shape[{info.name!r}] is {given}, but the model says {tuple(dims)}")
            dims = given
        elif not t.HasField("shape") or any(not isinstance(d, int) or d < 0 for d in dims):
            open_size = next((d for d in dims if isinstance(d, str) and d != "?"), None)
            named = f" or, for all inputs, shape={{{open_size!r}: ...}}" if open_size else ""
            raise ValueError(f"the shape of input {info.name!r} is ({', '.join(map(str, dims))}) in the model; give "
                             f"its sizes with shape={{{info.name!r}: (...)}}{named}: networks have fixed shapes")  # fmt: skip
        return var(info.name, shape=tuple(dims), dtype=kind)

    def compare(self, mod, params, given):
        """Runs every node in onnxruntime and in the network."""
        try:
            import onnxruntime
        except ImportError as err:
            raise ImportError("check compares with onnxruntime: pip install onnxruntime") from err
        proto, rows = type(self.proto)(), Comparison("onnxruntime")
        proto.CopyFrom(self.proto)
        proto.ir_version = min(proto.ir_version, 10)  # of the container; onnxruntime follows later than onnx
        there = {o.name for o in proto.graph.output}
        chosen = [row for row in self.made if dtype_of(row[2]) != "bfloat16"]  # NumPy has no bfloat16
        for _, name, _ in chosen:
            if name not in there:
                proto.graph.output.add().name = name
        inputs = self._values(given)
        try:
            options = onnxruntime.SessionOptions()
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
            options.log_severity_level = 3
            session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
            found = session.run([name for _, name, _ in chosen], inputs)
        except Exception as err:  # its own kinds
            raise ValueError(f"check: onnxruntime cannot run the model: {err}") from err
        for (text, _, e), want in zip(chosen, found):
            rows.add(text, e, want)
        rows.run(mod, params, inputs)

    def _values(self, given):
        """The inputs of a comparison, by name."""
        names = [v.name_hint for v in self.inputs]
        if given is not None:
            values = dict(given) if isinstance(given, dict) else dict(zip(names, given))
            if not isinstance(given, dict) and len(given) != len(names):
                raise ValueError(f"check gives {len(given)} inputs, the model has {', '.join(names)}")
            if set(values) != set(names):
                raise ValueError(f"check names the inputs {', '.join(values)}, the model has {', '.join(names)}")
            return {k: np.asarray(v) for k, v in values.items()}
        rng = np.random.default_rng(0)
        make = lambda t: rng.standard_normal(t.shape) if is_float(t.dtype) else rng.integers(0, 2, t.shape)  # noqa: E731
        return {v.name_hint: np.asarray(make(v.checked_type)).astype(v.checked_type.dtype) for v in self.inputs}

    def nodes(self, nodes, values, opset, keep):
        """Reads nodes; their results go into `values`. What no later node reads is let go, for constants take memory."""
        last = {name: i for i, node in enumerate(nodes) for name in _reads(node)}
        for name in keep:
            last.pop(name, None)
        gone = [[] for _ in nodes]
        for name, i in last.items():
            gone[i].append(name)
        for i, node in enumerate(nodes):
            budget.node()
            for name in gone[i - 1] if i else ():
                values.pop(name, None)
            if _name(node) == "If":
                self._if(node, values, opset)
                continue
            if _name(node) in BODIES:
                made = unrolled(lambda body, inner: self._body(body, inner, opset), node, values, opset)
                values.update({name: e for name, e in zip(node.output, made) if name})
                continue
            outs = self._convert(node, [values.get(i) if i else None for i in node.input], opset)
            for name, e in zip(node.output, [*outs, *[None] * len(node.output)]):  # fewer, where a definition does not fit
                if name and e is None and (name in last or name in keep):
                    raise ValueError(f"{label(node)}: nothing makes its output {name!r}; its attributes or inputs do not fit together")
                if name and e is not None:
                    values[name] = e
                    if values is self.values and not known(e) and not isinstance(e, Tuple):
                        self.made.append((f"{node.op_type} {node.name or name!r}", name, e))

    def _convert(self, node, inputs, opset):
        local = self.local(node) is not None
        f = None if local else CONVERTERS.get(_name(node))
        constant = all(known(i) and dtype_of(i) != "bfloat16" for i in inputs if i is not None)
        if f is None and not local and constant and _computable(node):
            return _computed(node, inputs, opset)
        if f is None:
            return self._expand(node, inputs, opset)
        title = called(node)
        try:
            n = Node(node.op_type, title, inputs, _attributes(node), opset, sum(map(bool, node.output)))
            if node.domain in ("", "ai.onnx"):
                _one_float_type(n)
            return named(as_list(folded(f(n), inputs)), title)
        except OpNotImplemented:
            raise
        except RecursionError:
            raise ValueError(f"{label(node)}: its value is nested too deeply") from None
        except (ValueError, TypeError, IndexError, KeyError, AttributeError, ArithmeticError, AssertionError, StopIteration) as e:
            raise ValueError(f"{label(node)}: {e}") from e

    def _expand(self, node, inputs, opset):
        """By the function of the model, or the standard's definition of the operator."""
        found = self.definition(node, [_type_proto(x) for x in inputs])
        if not isinstance(found, tuple):
            raise OpNotImplemented(f"{node.op_type} {node.name!r} is not supported; take it out of the model, or register a converter for it")
        defaults, body = found
        nodes = _with_attributes(body.node, {**defaults, **{a.name: a for a in node.attribute}})
        values = dict.fromkeys(body.input) | dict(zip(body.input, inputs))
        versions = {d.domain: d.version for d in body.opset_import}
        try:
            self.nodes(nodes, values, versions.get("", opset), body.output)
        except budget.Exceeded:
            raise
        except ValueError as e:  # the nodes of a definition are none of the user's
            raise ValueError(f"{label(node)}: {e}") from e
        return [values.get(o) for o in body.output]

    def _if(self, node, values, opset):
        cond = values.get(node.input[0])
        if cond is not None and known(cond) and cond.data.size != 1:
            raise ValueError(f"{label(node)}: its condition has {cond.data.size} elements; it must have one")
        if cond is None or not known(cond):
            raise OpNotImplemented(f"If {node.name!r} (control flow): its condition is computed from the data of the "
                                   "model. Export the model for one of the cases")  # fmt: skip
        branch = next(a.g for a in node.attribute if a.name == ("then_branch" if cond.data.item() else "else_branch"))
        self._missing(branch, {name for name, e in values.items() if known(e)}).check()
        values.update({name: e for name, e in zip(node.output, self._body(branch, dict(values), opset)) if name})

    def _body(self, body, values, opset):
        """The results of a graph inside of a node; `values` are those it may read, and become its own."""
        values.update((t.name, _constant(t)) for t in body.initializer)
        self.nodes(body.node, values, opset, [o.name for o in body.output])
        return [values[o.name] for o in body.output]


def _reads(node):
    """The names that a node reads, in its branches, too; names of a branch's own among them."""
    todo, names = [node], []
    while todo:
        n = todo.pop()
        names += n.input
        for a in n.attribute:
            if a.HasField("g"):
                todo += a.g.node
                names += [o.name for o in a.g.output]
    return names


def _with_attributes(nodes, given):
    """Copies of the nodes of a function, their references to its attributes replaced by these, in branches, too."""
    out = []
    for node in nodes:
        new = type(node)()
        new.CopyFrom(node)
        todo = [new]
        while todo:
            n = todo.pop()
            for a in [a for a in n.attribute if a.ref_attr_name]:
                name, wanted = a.name, a.ref_attr_name
                n.attribute.remove(a)
                if wanted in given:
                    b = n.attribute.add()
                    b.CopyFrom(given[wanted])
                    b.name = name
            for a in n.attribute:
                todo += a.g.node if a.HasField("g") else ()
        out.append(new)
    return out


def _one_float_type(n):
    """Raises if inputs for which the standard wants one type have several of floating point: weights that do not fit the data."""
    from onnx import defs

    try:
        wanted = defs.get_schema(n.op, n.opset, "").inputs
    except defs.SchemaError:
        return
    kinds = {}
    for k, e in enumerate(n.inputs):
        if e is not None and not isinstance(e, Tuple) and wanted and is_float(kind := dtype_of(e)):
            name = wanted[min(k, len(wanted) - 1)].type_str
            if kinds.setdefault(name, kind) != kind:
                raise ValueError(f"{n}: its inputs are {kinds[name]} and {kind}, where the standard wants one type; cast them in the model")


def _computable(node):
    """Whether the standard's reference can compute a node of which all inputs are known, as it would in any run."""
    return (node.domain in ("", "ai.onnx") and any(node.input) and node.op_type not in _RANDOM
            and not any(a.HasField("g") for a in node.attribute))  # fmt: skip


def _computed(node, inputs, opset):
    """The results of a node that has no converter on values that are known (`NonZero`, `Unique`, ...), by the standard's reference."""
    from onnx import ValueInfoProto, helper
    from onnx.reference import ReferenceEvaluator

    feeds = {name: np.asarray(e.numbers) for name, e in zip(node.input, inputs) if e is not None}
    wanted = [o for o in node.output if o]
    try:
        given = [helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in feeds.items()]
        graph = helper.make_graph([node], "known", given, [ValueInfoProto(name=o) for o in wanted])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
        made = dict(zip(wanted, budget.computed_in_time(lambda: ReferenceEvaluator(model).run(None, feeds))))
        found = {o: array(v) for o, v in made.items() if isinstance(v, (np.ndarray, np.generic))}
    except budget.Exceeded:
        raise
    except Exception as e:  # of any kind: an operator's own code
        raise OpNotImplemented(f"{node.op_type} {node.name!r} is not supported, and its value cannot be computed here: {e!r}") from e
    if len(found) != len(wanted):
        raise OpNotImplemented(f"{node.op_type} {node.name!r} makes values that are no tensors; these are not supported")
    return [found.get(o) for o in node.output]


def _type_proto(e):
    import onnx

    if e is None:
        return onnx.TypeProto()
    t = e.checked_type
    name = {"float32": "FLOAT", "float64": "DOUBLE"}.get(t.dtype, t.dtype.upper())
    return onnx.helper.make_tensor_type_proto(onnx.TensorProto.DataType.Value(name), [int(d) for d in t.concrete_shape])



