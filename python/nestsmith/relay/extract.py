"""From a fused network to tuning tasks: the distinct primitive functions, how often each is called, its name and its
tensors."""

import hashlib

import numpy as np

from .expr import Call, Constant, GlobalVar, Tuple, TupleGetItem, Var, is_primitive_call, post_order
from .ty import TupleType

__all__ = ["Kernel", "collect_kernels", "constants_of", "has_reduction", "structural_key", "fused_name", "string_hash"]

_M64 = (1 << 64) - 1


def string_hash(text):
    """The 64-bit hash that shortens long function names (spec 08 §4.7)."""
    data, mul = text.encode(), 0xC6A4A7935BD1E995

    def shift(v):
        return v ^ (v >> 47)

    h = (0xC70F6907 ^ (len(data) * mul)) & _M64
    whole = len(data) & ~7
    for i in range(0, whole, 8):
        w = int.from_bytes(data[i : i + 8], "little")
        h = ((h ^ (shift((w * mul) & _M64) * mul & _M64)) * mul) & _M64
    if whole < len(data):
        h = ((h ^ int.from_bytes(data[whole:], "little")) * mul) & _M64
    h = (shift(h) * mul) & _M64
    return shift(h)


def fused_name(func, max_length=80):
    """``fused`` and the operator names in post-order, shortened with a hash if too long."""
    name = "fused" + "".join("_" + e.op.name for e in post_order(func.body) if isinstance(e, Call) and e.op_name)
    if len(name) > max_length:
        name = f"{name[:max_length]}_{string_hash(name):x}_"
    return name.replace(".", "_")


def structural_key(func):
    """A text equal for two functions exactly if they are the same up to variable names."""
    number, parts = {}, []
    for i, p in enumerate(func.params):
        number[id(p)] = f"p{i}"
        parts.append(repr(p.checked_type))
    for k, e in enumerate(post_order(func.body)):
        if isinstance(e, Var):
            number.setdefault(id(e), f"?{e.name_hint}")
            continue
        number[id(e)] = f"%{k}"
        if isinstance(e, Constant):
            parts.append(f"{e.checked_type}:{hashlib.md5(np.ascontiguousarray(e.data).tobytes()).hexdigest()}")
        elif isinstance(e, Call):
            parts.append(f"{e.op_name}({','.join(number[id(a)] for a in e.args)}){sorted(e.attrs.items())!r}")
        elif isinstance(e, Tuple):
            parts.append("(" + ",".join(number[id(f)] for f in e.fields) + ")")
        elif isinstance(e, TupleGetItem):
            parts.append(f"{number[id(e.tuple_value)]}.{e.index}")
    parts += [f"{k}={func.attrs[k]}" for k in ("join", "joined") if k in func.attrs]
    return ";".join(parts) + f"->{number[id(func.body)]}:{func.body.checked_type}"


class Kernel:
    """A distinct primitive function: `func`, `name` (unique), `count` (calls in the network), `static` (all shapes
    known)."""

    __slots__ = ("func", "name", "count", "key", "layers")

    def __init__(self, func, name, key):
        self.func, self.name, self.count, self.key, self.layers = func, name, 0, key, []

    @property
    def static(self):
        return all(t.is_static for t in (*(p.checked_type for p in self.func.params), self.func.body.checked_type))

    def output_types(self):
        t = self.func.body.checked_type
        return list(t.fields) if isinstance(t, TupleType) else [t]

    def __repr__(self):
        return f"<kernel {self.name} x{self.count}>"


def unique(used, name):
    """`name`, or the first of ``name_1``, ``name_2``, ... that is not `used` yet; it is from now on."""
    base, n = name, 0
    while name in used:
        n += 1
        name = f"{base}_{n}"
    used.add(name)
    return name


def collect_kernels(mod, prefix=""):
    """Distinct primitive functions of a fused module in evaluation order, and a map from the id of each call to its
    kernel."""
    kernels, by_key, used, calls = [], {}, set(), {}
    todo, done = ["main"], set()
    while todo:
        fname = todo.pop(0)
        if fname in done or fname not in mod:
            continue
        done.add(fname)
        for e in post_order(mod[fname].body):
            if isinstance(e, GlobalVar):
                todo.append(e.name_hint)
            if not is_primitive_call(e):
                continue
            key = structural_key(e.op)
            k = by_key.get(key)
            if k is None:
                k = by_key[key] = Kernel(e.op, unique(used, prefix + fused_name(e.op)), key)
                kernels.append(k)
            k.count += 1
            if e.span:
                k.layers.append(str(e.span))
            calls[id(e)] = k
    return kernels, calls


def has_reduction(dag):
    """Whether some stage of a DAG reduces: only such subgraphs are worth tuning."""
    return any(not op.is_placeholder and len(op.reduce_axis) > 0 for op in dag.ops)


def constants_of(mod, calls):
    """({id of kernel: positions of its parameters, tuples taken apart, that are constants in every call}, bytes of all
    these constants) of a fused module and the calls that `collect_kernels` found in it."""
    positions, nbytes = {}, {}
    for e in post_order(mod["main"].body):
        if id(e) not in calls:
            continue
        here, at = set(), 0
        for a in e.args:
            if isinstance(a, Constant):
                here.add(at)
                nbytes[id(a)] = a.data.nbytes
            at += len(a.checked_type.fields) if isinstance(a.checked_type, TupleType) else 1
        key = id(calls[id(e)])
        positions[key] = positions.get(key, here) & here
    return {key: frozenset(v) for key, v in positions.items()}, sum(nbytes.values())
