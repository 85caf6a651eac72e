"""What can be said of expressions and modules without changing them."""

import numpy as np

from . import expr as rx
from .backend.evaluate import Evaluator, result_of, value_of
from .expr import free_vars as _free_vars
from .extract import collect_kernels
from .infer import infer_type
from .module import IRModule
from .ty import FuncType, GlobalTypeVar, TensorType, Type, TypeVar, map_parts

__all__ = ["post_order_visit", "well_formed", "check_constant", "check_kind", "check_basic_block_normal_form",
           "free_vars", "bound_vars", "all_vars", "free_type_vars", "bound_type_vars", "all_type_vars", "all_dtypes",
           "get_total_mac_number", "detect_feature", "Feature", "list_op_freqs", "extract_fused_functions",
           "count_layers", "extract_intermdeiate_expr", "search_fc_transpose", "get_calibration_data",
           "operations_distribution"]  # fmt: skip


def _body(x):
    return x["main"] if isinstance(x, IRModule) else x


def post_order_visit(expr, fvisit):
    """Calls `fvisit` with every node (operators as well) once, after what it consists of."""
    for e in rx.all_nodes(expr):
        fvisit(e)


def well_formed(expr):
    """Whether every variable is bound at most once and is in scope where it is read; free variables are allowed that are bound nowhere."""
    expr = _body(expr)
    bound, free = set(), set()

    def bind(v):
        if id(v) in bound or id(v) in free:
            return False
        bound.add(id(v))
        return True

    stack, scope, checked = [(expr, None)], set(), set()
    while stack:
        e, leave = stack.pop()
        if leave is not None:
            scope.difference_update(map(id, leave))
            continue
        if isinstance(e, rx.Var):
            if id(e) not in scope:
                if id(e) in bound:
                    return False
                free.add(id(e))
        elif isinstance(e, rx.Function):
            if id(e) in checked:
                continue
            checked.add(id(e))
            if not all([bind(p) for p in e.params]):
                return False
            scope.update(map(id, e.params))
            stack += [(None, e.params), (e.body, None)]
        elif isinstance(e, rx.Let):
            if not bind(e.var):
                return False
            if isinstance(e.value, rx.Function):
                scope.add(id(e.var))
                stack += [(None, [e.var]), (e.body, None), (e.value, None)]
            else:
                stack += [(_Scoped(e), None), (e.value, None)]
        elif isinstance(e, _Scoped):
            scope.add(id(e.let.var))
            stack += [(None, [e.let.var]), (e.let.body, None)]
        elif isinstance(e, rx.Call):
            if id(e) in checked and not scope:
                continue
            checked.add(id(e))
            stack += [(c, None) for c in reversed(rx.children(e))]
        else:
            stack += [(c, None) for c in reversed(rx.children(e))]
    return True


class _Scoped:
    """The body of a let, whose variable is in scope from here on."""

    def __init__(self, let):
        self.let = let


def check_constant(expr):
    """Whether an expression depends on constants alone."""
    plain = (rx.Constant, rx.Tuple, rx.TupleGetItem)
    return all(isinstance(e, plain) or (isinstance(e, rx.Call) and e.op_name) for e in rx.post_order(expr))


def check_kind(t, mod=None):
    """The kind of a type (:class:`relay.TypeKind`). Raises ValueError if types are combined that cannot be."""
    if isinstance(t, TypeVar):
        return t.kind
    for part in _parts(t):
        if isinstance(part, TypeVar) and part.kind not in (0, 1, 2, 5):
            raise ValueError(f"{part} is no type, so it cannot be a part of {t}")
    return 0


def check_basic_block_normal_form(expr):
    """Whether no expression is shared between the branches of an if and what is outside of them."""
    expr = _body(expr)
    owner: dict[int, object] = {}
    stack = [(expr, None)]
    while stack:
        e, block = stack.pop()
        if isinstance(e, (rx.Var, rx.Constant, rx.GlobalVar)):
            continue
        if id(e) in owner:
            if owner[id(e)] is not block:
                return False
            continue
        owner[id(e)] = block
        if isinstance(e, rx.If):
            stack += [(e.cond, block), (e.true_branch, (e, 0)), (e.false_branch, (e, 1))]
            owner[id(e)] = block
        elif isinstance(e, rx.Function):
            stack.append((e.body, (e, 2)))
        else:
            stack += [(c, block) for c in rx.children(e)]
    return True


def free_vars(expr):
    """The free variables of an expression, in the order in which they are met."""
    return _free_vars(_body(expr))


def bound_vars(expr):
    """The variables that functions and lets bind, in the order in which they are met."""
    out: dict[int, rx.Var] = {}
    for e in reversed(rx.all_nodes(_body(expr))):
        for v in e.params if isinstance(e, rx.Function) else [e.var] if isinstance(e, rx.Let) else []:
            out.setdefault(id(v), v)
    return list(out.values())


def all_vars(expr):
    """All variables, in the order in which they are met."""
    return [e for e in rx.all_nodes(_body(expr)) if isinstance(e, rx.Var)]


def _parts(t):
    """A type and all types in it."""
    out, below = [t], map_parts(lambda b: b, t)
    for v in below.values():
        for b in v if isinstance(v, list) else [v]:
            out += _parts(b)
    return out


def _types(x):
    """The types that are written in an expression, or a type itself."""
    if isinstance(x, Type):
        return [x]
    out = []
    for e in rx.all_nodes(_body(x)):
        if isinstance(e, rx.Function):
            out += [*e.type_params, *([e.ret_type] if e.ret_type is not None else [])]
        elif isinstance(e, rx.Var) and e.type_annotation is not None:
            out.append(e.type_annotation)
    return out


def _unique(items):
    return list({id(v): v for v in items}.values())


def all_type_vars(expr, mod=None):
    """All type variables of an expression or a type."""
    return _unique(p for t in _types(expr) for p in _parts(t) if isinstance(p, TypeVar) and not isinstance(p, GlobalTypeVar))


def bound_type_vars(expr, mod=None):
    """Type variables that functions or function types bind."""
    bound = [p for t in _types(expr) for f in _parts(t) if isinstance(f, FuncType) for p in f.type_params]
    if not isinstance(expr, Type):
        bound += [p for e in rx.all_nodes(_body(expr)) if isinstance(e, rx.Function) for p in e.type_params]
    return _unique(bound)


def free_type_vars(expr, mod=None):
    """Type variables that nothing binds."""
    bound = {id(v) for v in bound_type_vars(expr)}
    return [v for v in all_type_vars(expr) if id(v) not in bound]


def all_dtypes(expr):
    """The set of element types of everything in an expression."""
    expr = _body(expr)
    infer_type(expr)
    out = set()
    for e in rx.all_nodes(expr):
        if isinstance(e, rx.Expr) and e._type is not None:
            out |= {p.dtype for p in _parts(e._type) if isinstance(p, TensorType)}
    return out


def _axis(layout, letter):
    """Position of an axis in a layout."""
    return [c for c in layout if c.isalpha()].index(letter)


def _conv_macs(call):
    """Multiplications of a convolution: those of one element of its result, for all of them."""
    data, weight = (a.checked_type.shape for a in call.args[:2])
    axes = [c for c in call.attrs.kernel_layout if c.isalpha()]
    each = int(np.prod([n for n, c in zip(weight, axes) if c.upper() not in "OI" or (c.upper() == "I" and "transpose" not in call.op_name)]))
    if "transpose" in call.op_name:
        each *= data[_axis(call.attrs.data_layout, "C")] // int(call.attrs.groups)
    return call.checked_type.size * each


def _macs(call):
    if call.op_name in ("nn.dense", "nn.matmul", "nn.batch_matmul"):
        shape = call.args[0].checked_type.shape
        return call.checked_type.size * shape[-2 if call.attrs.get("transpose_a") else -1]
    return _conv_macs(call) if call.attrs.get("kernel_layout") and len(call.args) > 1 else 0


def get_total_mac_number(expr):
    """The number of multiply-accumulate operations of the convolutions and matrix products in an expression."""
    expr = _body(expr)
    infer_type(expr)
    return int(sum(_macs(e) for e in rx.all_nodes(expr) if isinstance(e, rx.Call) and e.op_name))


def list_op_freqs(mod):
    """How often each operator is called in a module: {name: number}."""
    out: dict[str, int] = {}
    funcs = mod.functions.values() if isinstance(mod, IRModule) else [mod]
    for f in funcs:
        for e in rx.all_nodes(f):
            if isinstance(e, rx.Call) and e.op_name:
                out[e.op_name] = out.get(e.op_name, 0) + 1
    return out


def extract_fused_functions(mod):
    """The primitive functions that a fused module calls, by a name for each: {name: Function}."""
    kernels, _ = collect_kernels(mod, "")
    return {k.name: k.func for k in kernels}


def count_layers(expr, valid_ops=("nn.conv2d", "nn.dense")):
    """The largest number of calls of these operators on a way through an expression."""
    depth: dict[int, int] = {}
    expr = _body(expr)
    for e in rx.all_nodes(expr):
        counts = isinstance(e, rx.Call) and e.op_name in valid_ops
        depth[id(e)] = max((depth[id(c)] for c in rx.parts(e)), default=0) + counts
    return depth[id(expr)]


def extract_intermdeiate_expr(mod, expr_id):
    """A module whose ``main`` computes the call number `expr_id` (in post-order) of ``main`` of `mod`."""
    calls = [e for e in rx.post_order(mod["main"].body) if isinstance(e, rx.Call)]
    if not 0 <= expr_id < len(calls):
        raise ValueError(f"expr_id is {expr_id}; main has {len(calls)} calls")
    return IRModule.from_expr(rx.Function(_free_vars(calls[expr_id]), calls[expr_id]))


def search_fc_transpose(expr):
    """Names of the weights of dense layers that are the transpose of a variable."""
    found = []
    for e in rx.all_nodes(_body(expr)):
        if isinstance(e, rx.Call) and e.op_name == "nn.dense":
            w = e.args[1]
            if isinstance(w, rx.Call) and w.op_name == "transpose" and isinstance(w.args[0], rx.Var):
                found.append(w.args[0].name_hint)
    return list(dict.fromkeys(found))


def get_calibration_data(mod, data):
    """What goes into and out of the functions of a module that carry the attribute ``Compiler``, when ``main`` is run on `data` (name ->
    array): {GlobalVar: {"inputs": [...], "outputs": [...]}}."""
    got: dict = {}

    class Watching(Evaluator):
        def apply(self, f, args, attrs=None):
            out = super().apply(f, args, attrs)
            if isinstance(f, rx.GlobalVar) and self.mod[f].attrs.get("Compiler"):
                outs = out if isinstance(out, tuple) else (out,)
                got[f] = {"inputs": [result_of(a) for a in args], "outputs": [result_of(o) for o in outs]}
            return out

    main = mod["main"]
    Watching(mod).apply(main, [value_of(data[p.name_hint]) for p in main.params])
    return got


def operations_distribution(mod):
    """Calls of operators by the backend that they were given to: {name of the backend ("generic"): number}."""
    out: dict[str, int] = {}
    for f in mod.functions.values():
        where = str(f.attrs.get("Compiler", "generic"))
        out[where] = out.get(where, 0) + sum(isinstance(e, rx.Call) and bool(e.op_name) for e in rx.all_nodes(f.body))
    return out


class Feature:
    """Kinds of nodes that an expression may have, as numbers."""

    fVar, fGlobalVar, fConstant, fTuple, fTupleGetItem, fFunction, fOp, fCall, fLet, fIf, fRefCreate, fRefRead, fRefWrite = range(13)
    fConstructor, fMatch, fGraph, fLetRec = range(13, 17)


def detect_feature(a, b=None):
    """The set of :class:`Feature` of an expression or module (given alone or beside the other); ``fGraph``: a node is read twice."""
    expr = a if not isinstance(a, IRModule) or b is None else b
    roots = list(expr.functions.values()) if isinstance(expr, IRModule) else [expr]
    out = set()
    for root in roots:
        readers: dict[int, int] = {}
        for e in rx.all_nodes(root):
            out.add(getattr(Feature, f"f{type(e).__name__}"))
            if isinstance(e, rx.Let) and any(x is e.var for x in rx.all_nodes(e.value)):
                out.add(Feature.fLetRec)
            for c in rx.children(e) if isinstance(e, rx.Expr) else ():
                if not isinstance(c, (rx.Var, rx.GlobalVar, rx.Constant)):
                    readers[id(c)] = readers.get(id(c), 0) + 1
        if any(n > 1 for n in readers.values()):
            out.add(Feature.fGraph)
    return out
