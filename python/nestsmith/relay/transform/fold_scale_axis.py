"""FoldScaleAxis: a multiplication by one constant per channel moves into the weight of a neighbouring convolution or
dense layer.

*Backward*: the scale follows the layer; *forward*: it precedes it. Both work with messages. A message at a value
says: a scale
over these axes could be absorbed here, if it is not negative (needed when a relu lies between) and if it is not zero (needed
when it has to pass an addition forward, whose other operand is divided by it). The first walk
computes the messages, the second rebuilds the graph and drops the multiplications.
"""

import numpy as np

from ...numerics import is_float
from .. import op, passes
from ..expr import Call, Constant, Function, children, count_refs, post_order, reach, with_children
from ..infer import infer_type
from ..op.nn import conv_axes
from ..ty import TensorType
from .fold_constant import FoldConstant

__all__ = ["BackwardFoldScaleAxis", "ForwardFoldScaleAxis", "FoldScaleAxis"]

_CONV = {"nn.conv2d": 2, "nn.conv3d": 3}
_RELU = ("nn.relu", "nn.leaky_relu")
_POSITIVE_DTYPES = ("float32", "float64", "int8", "uint8", "int32", "uint32")


def fits(big, small, axes):
    """Whether a tensor of type `small` is one value per index of `axes` of a tensor of type `big`, aligned at the
    right."""
    nb, ns = len(big.shape), len(small.shape)
    if ns > nb:
        return False
    off = nb - ns
    for a in axes:
        if a < off or small.shape[a - off] != big.shape[a]:
            return False
    return all(d == 1 for i, d in enumerate(small.shape) if i + off not in axes)


def _small(scale):
    """Whether the scale is a constant or comes from tensors no larger than itself, such as batch-norm vectors. A
    gate computed from the data must not be folded: the weight would have to be scaled anew in every run."""
    if isinstance(scale, Constant):
        return True
    most = scale.checked_type.size
    for k, e in enumerate(reach([scale], children)):
        t = e.checked_type
        if not isinstance(t, TensorType) or not t.is_static or t.size > most or k >= 64:
            return False
    return True


def _usable(message, scale, big):
    axes, positive, *divides = message
    if not axes or not fits(big, scale.checked_type, axes) or not _small(scale):
        return False
    if any(divides) and isinstance(scale, Constant) and not np.all(scale.data):
        return False
    if positive:
        return (isinstance(scale, Constant) and str(scale.data.dtype) in _POSITIVE_DTYPES
                and bool(np.all(scale.data >= 0)))  # fmt: skip
    return True


def _one_float_type(call):
    """Whether data, weight and result have one floating-point type. A scale has the type of what it multiplies: a weight of
    another type would not hold it, and a narrower one not exactly; sums of integers wrap."""
    types = {e.checked_type.dtype for e in (*call.args, call)}
    return len(types) == 1 and is_float(types.pop())


def _conv_positions(call):
    """(data C axis, output C axis, weight O axis, weight I axis, depthwise), or None if the convolution cannot take
    a scale."""
    dims = _CONV.get(call.op_name)
    if dims is None or not _one_float_type(call):
        return None
    a = call.attrs
    try:
        dpos, kpos = conv_axes(a, dims)
    except ValueError:
        return None
    w = call.args[1].checked_type
    c = call.args[0].checked_type.shape[dpos[1]]
    depthwise = a.groups > 1 and a.groups == c and w.shape[kpos[0]] == c and w.shape[kpos[1]] == 1
    if a.groups != 1 and not depthwise:
        return None
    out = (a.out_layout or a.data_layout).find("C")
    return dpos[1], out, kpos[0], kpos[1], depthwise


def _takes_scale(call):
    """Whether a call is a dense layer whose weight can be multiplied by a scale."""
    return call.op_name == "nn.dense" and len(call.args[0].checked_type.shape) == 2 and _one_float_type(call)


def _column(scale, axes, rank, axis):
    """The scale (over `axes`) as a vector along `axis` of a tensor of `rank`."""
    n = int(np.prod(scale.checked_type.shape))
    flat = scale if scale.checked_type.shape == (n,) else op.reshape(scale, (n,))
    tail = rank - axis - 1
    return op.expand_dims(flat, 1, tail) if tail else flat


def _scaled_weight(call, scale, axis_kind):
    """The call with its weight multiplied along O (backward) or I (forward)."""
    data, weight = call.args
    if call.op_name == "nn.dense":
        s = _column(scale, None, 2, 0 if axis_kind == "O" else 1)
    else:
        _, _, o, i, depthwise = _conv_positions(call)
        s = _column(scale, None, len(weight.checked_type.shape), o if axis_kind == "O" or depthwise else i)
    return with_children(call, (data, op.multiply(weight, s)))


def _is_op(e, *names):
    return isinstance(e, Call) and e.op_name in names


# ---- backward ------------------------------------------------------------------------------------------------------


def _backward_messages(body):
    order = post_order(body)
    refs = count_refs(body, order)
    msg = {}
    for e in order:
        m = None
        if isinstance(e, Call) and e.op_name and refs[id(e)] == 1:
            if e.op_name in _CONV:
                pos = _conv_positions(e)
                if pos:
                    m = (frozenset([pos[1]]), False)
            elif _takes_scale(e):
                m = (frozenset([1]), False)
            elif e.op_name in _RELU:
                inner = msg.get(id(e.args[0]))
                m = inner and (inner[0], True)
            elif e.op_name in ("add", "subtract"):
                lhs, rhs = e.args
                lm, rm = msg.get(id(lhs)), msg.get(id(rhs))
                tl, tr = lhs.checked_type, rhs.checked_type
                if lm and fits(tl, tr, lm[0]):
                    m = lm
                elif rm and fits(tr, tl, rm[0]):
                    m = rm
                elif lm and rm and lm[0] == rm[0] and tl.shape == tr.shape:
                    m = (lm[0], lm[1] or rm[1])
            elif e.op_name == "nn.bias_add":
                inner = msg.get(id(e.args[0]))
                rank = len(e.checked_type.shape)
                if inner and inner[0] == frozenset([e.attrs.axis % rank]):
                    m = inner
        if m:
            msg[id(e)] = m
    return order, msg


def _push_back(e, scale, msg, memo):
    """The rebuilt `e` multiplied by `scale`; the scale ends in a weight. `e` is an original node with a message."""
    if e.op_name in _RELU:
        return with_children(e, (_push_back(e.args[0], scale, msg, memo),))
    if e.op_name in ("add", "subtract"):
        new = []
        for a in e.args:
            new.append(_push_back(a, scale, msg, memo) if id(a) in msg else op.multiply(memo[id(a)], scale))
        return with_children(e, new)
    if e.op_name == "nn.bias_add":
        bias = memo[id(e.args[1])]
        n = bias.checked_type.shape[0]
        return with_children(e, (_push_back(e.args[0], scale, msg, memo), op.multiply(bias, op.reshape(scale, (n,)))))
    return _scaled_weight(with_children(e, [memo[id(a)] for a in e.args]), scale, "O")


def _backward(body):
    order, msg = _backward_messages(body)
    memo = {}
    for e in order:
        new = None
        if _is_op(e, "multiply"):
            for x, s in ((e.args[0], e.args[1]), (e.args[1], e.args[0])):
                if id(x) in msg and _usable(msg[id(x)], memo[id(s)], x.checked_type):
                    new = _push_back(x, memo[id(s)], msg, memo)
                    break
        memo[id(e)] = new if new is not None else with_children(e, [memo[id(c)] for c in children(e)])
    return memo[id(body)]


# ---- forward -------------------------------------------------------------------------------------------------------


def _forward_messages(body):
    order = post_order(body)
    msg = {id(body): None}
    for e in reversed(order):
        m = msg.get(id(e))
        kids = children(e)
        sent = [None] * len(kids)
        if isinstance(e, Call) and e.op_name:
            if e.op_name in _RELU:
                sent[0] = m and (m[0], True, m[2])
            elif e.op_name in ("add", "subtract") and m:
                tl, tr = (a.checked_type for a in e.args)
                if fits(tl, tr, m[0]):
                    sent[0] = (m[0], m[1], True)
                elif fits(tr, tl, m[0]):
                    sent[1] = (m[0], m[1], True)
            elif e.op_name in _CONV:
                pos = _conv_positions(e)
                if pos:
                    sent[0] = (frozenset([pos[0]]), False, False)
            elif _takes_scale(e):
                sent[0] = (frozenset([1]), False, False)
        for c, s in zip(kids, sent):
            if id(c) in msg:
                old = msg[id(c)]
                if old is None or s is None:
                    msg[id(c)] = None
                else:
                    axes = old[0] & s[0]
                    msg[id(c)] = (axes, old[1] or s[1], old[2] or s[2]) if axes else None
            else:
                msg[id(c)] = s
    return order, msg


def _forward(body):
    order, msg = _forward_messages(body)
    memo, owes = {}, {}
    for e in order:
        args = [memo[id(c)] for c in children(e)]
        new, debt = None, None
        if isinstance(e, Call) and e.op_name:
            debts = [owes.get(id(c)) for c in e.args]
            m = msg.get(id(e))
            if e.op_name == "multiply" and m:
                for k in (0, 1):
                    x, s = e.args[k], args[1 - k]
                    if not any(debts) and _usable(m, s, e.checked_type) and x.checked_type == e.checked_type:
                        new, debt = args[k], s
                        break
            elif any(debts):
                s = next(d for d in debts if d is not None)
                if e.op_name in _RELU:
                    debt = s
                elif e.op_name in ("add", "subtract"):
                    k = 0 if debts[0] is not None else 1
                    other = op.divide(args[1 - k], s)
                    new = with_children(e, (args[0], other) if k == 0 else (other, args[1]))
                    debt = s
                else:
                    new = _scaled_weight(with_children(e, args), s, "I")
        memo[id(e)] = new if new is not None else with_children(e, args)
        if debt is not None:
            owes[id(e)] = debt
    return memo[id(body)]


def _folded(func, fold):
    infer_type(func)
    if any(isinstance(e, Function) for e in post_order(func.body)):
        return func
    body = fold(func.body)
    return func if body is func.body else Function(func.params, body, None, func.type_params, func.attrs, func.span)


@passes.makes_function_pass(opt_level=3)
def BackwardFoldScaleAxis(func, mod, ctx):
    """Scales after a layer move into its weight."""
    return _folded(func, _backward)


@passes.makes_function_pass(opt_level=3)
def ForwardFoldScaleAxis(func, mod, ctx):
    """Scales before a layer move into its weight."""
    return _folded(func, _forward)


def FoldScaleAxis():
    """Backward, then forward folding, then FoldConstant."""
    return passes.Sequential([BackwardFoldScaleAxis(), ForwardFoldScaleAxis(), FoldConstant()], opt_level=3, name="FoldScaleAxis")
