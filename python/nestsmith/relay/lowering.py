"""A primitive function becomes tensor expressions: each call by the definition of its operator.

Where an operator has several definitions (direct convolution, depthwise, Winograd) the choice depends on the target and the attributes
alone, so that extraction and build always agree.
"""

from .. import te, tir, topi
from ..error import OpNotImplemented
from ..te.operation import operations
from ..topi.naming import naming, placeholder_name
from .expr import Call, Constant, Tuple, TupleGetItem, Var, post_order
from .op.blocks import relayout
from .ty import TupleType

__all__ = ["lower_function", "lowered", "Lowered", "NAMINGS", "NotLowerable", "refusal"]

# (placeholder names, pooling names): the default one first, then that of releases since 0.11.
NAMINGS = (("placeholder", "tensor"), ("p", "pool"))


class NotLowerable(OpNotImplemented, ValueError):
    """An operator has no definition as loops on this target."""


# ---- functions -----------------------------------------------------------------------------------------------------


class Lowered:
    """A primitive function as tensors.

    `params`: placeholders in the order of the function's parameters (tuples flattened); `outputs`: results; `io`:
    placeholders in
    the order in which a walk from the outputs meets them, then the outputs (the tensor list of the DAG).
    """

    __slots__ = ("params", "outputs", "io")

    def __init__(self, params, outputs):
        self.params, self.outputs = params, outputs
        self.io = _inputs_of(outputs) + outputs


def _inputs_of(outputs):
    return [op.output(0) for op in operations([t.op for t in outputs]) if op.is_placeholder]


def _placeholder(t, name):
    return te.placeholder(t.concrete_shape, t.dtype, name=name)


def _value(t, name):
    """A placeholder of a type, or one per field of a tuple."""
    return [_placeholder(f, name) for f in t.fields] if isinstance(t, TupleType) else _placeholder(t, name)


_MOST_INSIDE = 16  # elements of a constant in a kernel's text


def _constant(constant):
    """A constant inside of a function: a number, or a few of them chosen by their place."""
    dtype, values = constant.checked_type.dtype, constant.numbers.reshape(-1).tolist()
    if not constant.data.ndim:
        return topi.scalar_const(values[0], dtype)
    if not 0 < len(values) <= _MOST_INSIDE:
        raise NotLowerable(f"a constant of {len(values)} elements inside a fused function; there may be {_MOST_INSIDE}")

    def element(*index):
        place, out = topi.util.position(index, constant.data.shape), tir.const(values[-1], dtype)
        for k, v in reversed(list(enumerate(values[:-1]))):
            out = tir.Select(place.equal(k), tir.const(v, dtype), out)
        return out

    return te.compute(constant.data.shape, element, name="constant")


def _apply(call, inputs, target, instead=None):
    """What a call means. The type of a call promises shapes and element types; a definition that gives others must not get
    into a network, where memory of equal size would hide it."""
    rule, a = call.op.loops, call.attrs
    if rule is None:
        raise NotLowerable(f"operator {call.op_name} has no definition as loops")
    try:
        out = instead(call, inputs) if instead is not None else None
        if out is None:
            out = rule(a, inputs, call, target)
    except NotLowerable:
        raise
    except ValueError as err:
        raise NotLowerable(f"operator {call.op_name}: {err}") from err
    layout = a.get("data_layout") or a.get("layout")
    alpha = f"{layout}{a.get('out_layout')}{a.get('kernel_layout')}".isalpha()  # convolutions of blocks see to it themselves
    if a.get("out_layout") and a.out_layout != layout and (alpha or "kernel_layout" not in a):
        out = relayout(out, layout, a.out_layout)
    t = call.checked_type
    want = [(f.shape, f.dtype) for f in (t.fields if isinstance(t, TupleType) else [t])]
    got = [(topi.util.get_const_tuple(o.shape), o.dtype) for o in (out if isinstance(out, list) else [out])]
    if got != want:
        raise NotLowerable(f"operator {call.op_name} has no definition of type {t}; the nearest one gives {got}")
    return out


def _lower(func, target, instead):
    env, params = {}, []
    for i, p in enumerate(func.params):
        env[id(p)] = _value(p.checked_type, placeholder_name(i))
        params += env[id(p)] if isinstance(env[id(p)], list) else [env[id(p)]]
    for e in post_order(func.body):
        if isinstance(e, Var):
            continue
        if isinstance(e, Constant):
            env[id(e)] = _constant(e)
        elif isinstance(e, Tuple):
            env[id(e)] = [env[id(f)] for f in e.fields]
        elif isinstance(e, TupleGetItem):
            env[id(e)] = env[id(e.tuple_value)][e.index]
        elif isinstance(e, Call):
            env[id(e)] = _apply(e, [env[id(a)] for a in e.args], target, instead)
        else:
            raise NotLowerable(f"a {type(e).__name__} inside a fused function")
    out = env[id(func.body)]
    outputs, taken = [], set(params)
    for t in out if isinstance(out, list) else [out]:
        if t in taken:
            t = topi.identity(t)
        taken.add(t)
        outputs.append(t)
    return Lowered(params, outputs)


def lower_function(func, target, names=NAMINGS[0], instead=None):
    """The tensors of a primitive function; NotLowerable if an operator has no definition, ValueError on unknown
    shapes. `instead`: (call, inputs) -> another definition of a call, or None for the usual one."""
    with naming(placeholders=names[0], pooling=names[1]):
        return _lower(func, target, instead)


def lowered(func, target):
    """A primitive function in the naming of each release, the default one first: list of `Lowered`. Raises as `lower_function`."""
    return [lower_function(func, target, names) for names in NAMINGS]


def refusal(failed, target):
    """What to raise when some of a network's functions did not become loops; `failed`: pairs of a kernel (of
    :mod:`.extract`) and its error. Names every operator without a definition, how often it is called, and why: each call is
    tried alone, so that all are found at once."""
    found: dict = {}
    for k, _ in failed:
        for e in post_order(k.func.body):
            if not isinstance(e, Call):
                continue
            try:
                inputs = [_constant(a) if isinstance(a, Constant) else _value(a.checked_type, "x") for a in e.args]
                _apply(e, inputs, target)
            except ValueError as err:
                calls, why = found.get(e.op_name, (0, str(err)))
                found[e.op_name] = calls + k.count, why
    lines = [f"{name}, {n} call{'s'[: n > 1]}: {why}" for name, (n, why) in found.items()]
    lines = lines or [f"{k.name}: {err}" for k, err in failed]
    told = "the network cannot be built, what follows has no definition as loops:"
    return NotLowerable(f"{told} {lines[0]}" if len(lines) == 1 else "\n  ".join([told, *lines]))
