"""Recurrent layers of ONNX as one step after the other: the number of steps is known."""

from .. import budget, op as relay
from . import common as c
from .values import array, dtype_of, filled, shape_of

__all__ = ["recurrent"]

_GATES = {"RNN": 1, "LSTM": 4, "GRU": 3}
_DEFAULT = {"RNN": ["Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"]}
# How many parameters the activations have: alpha, then beta.
_PARAMETERS = {"Relu": 0, "Tanh": 0, "Sigmoid": 0, "Softsign": 0, "Softplus": 0, "LeakyRelu": 1, "ThresholdedRelu": 1,
               "Elu": 1, "Affine": 2, "ScaledTanh": 2, "HardSigmoid": 2}  # fmt: skip


def _direction(n, d):
    """Weights of direction `d`: input, recurrent, the two biases (None without), peepholes (None without)."""
    pick = lambda x: None if x is None else c.element(x, 0, d)  # noqa: E731
    bias = pick(n.input(3))
    gates = _GATES[n.op] * n.get("hidden_size")
    halves = (None, None) if bias is None else (c.part(bias, 0, 0, gates), c.part(bias, 0, gates, 2 * gates))
    return pick(n.input(1)), pick(n.input(2)), *halves, pick(n.input(7)) if n.op == "LSTM" else None


def _activations(n, d):
    """The activations of direction `d`. Those of all directions take their alphas and betas in turn, each as many as it has."""
    k = len(_DEFAULT[n.op])
    alphas, betas = iter(n.get("activation_alpha", [])), iter(n.get("activation_beta", []))
    clip = n.get("clip")
    made = []
    for spelled in n.get("activations", _DEFAULT[n.op] * 2):
        name = next((a for a in _PARAMETERS if a.lower() == spelled.lower()), spelled)
        count = _PARAMETERS.get(name, 0)
        made.append((name, next(alphas, None) if count > 0 else None, next(betas, None) if count > 1 else None))

    def make(name, alpha, beta):
        return lambda x: c.activation(name, x if clip is None else relay.clip(x, -clip, clip), alpha, beta)

    return [make(*a) for a in made[d * k : d * k + k]]


def _rnn(n, fs, x, h, state, r, bias, peep, size):
    return fs[0](relay.add(x, c.linear(h, r, bias))), None


def _gru(n, fs, x, h, state, r, bias, peep, size):
    cut = lambda v, i: c.part(v, -1 % len(shape_of(v)), i * size, (i + 1) * size)  # noqa: E731
    both = c.linear(h, c.part(r, 0, 0, 2 * size), None if bias is None else c.part(bias, 0, 0, 2 * size))
    z, reset = (fs[0](relay.add(cut(x, i), cut(both, i))) for i in (0, 1))
    rh, bh = c.part(r, 0, 2 * size, 3 * size), None if bias is None else c.part(bias, 0, 2 * size, 3 * size)
    if n.get("linear_before_reset"):
        hidden = relay.multiply(reset, c.linear(h, rh, bh))
    else:
        hidden = c.linear(relay.multiply(reset, h), rh, bh)
    new = fs[1](relay.add(cut(x, 2), hidden))
    return relay.add(relay.multiply(relay.subtract(c.scalar(1, z), z), new), relay.multiply(z, h)), None


def _lstm(n, fs, x, h, state, r, bias, peep, size):
    y = relay.add(x, c.linear(h, r, bias))
    i, o, f, g = (c.part(y, 1, k * size, (k + 1) * size) for k in range(4))
    look = lambda v, k: v if peep is None else relay.add(v, relay.multiply(c.part(peep, 0, k * size, (k + 1) * size), state))  # noqa: E731
    i = fs[0](look(i, 0))
    f = relay.subtract(c.scalar(1, i), i) if n.get("input_forget") else fs[0](look(f, 2))
    new = relay.add(relay.multiply(f, state), relay.multiply(i, fs[1](g)))
    o = fs[0](o if peep is None else relay.add(o, relay.multiply(c.part(peep, 0, size, 2 * size), new)))
    return relay.multiply(o, fs[2](new)), new


_STEP = {"RNN": _rnn, "LSTM": _lstm, "GRU": _gru}


def recurrent(n):
    """Y (steps, directions, batch, hidden), the last hidden state, and for LSTM the last cell state. A ninth input (directions,
    projected, hidden), which ONNX does not have, projects hidden states."""
    x = n.input(0)
    x = relay.transpose(x, [1, 0, 2]) if n.get("layout") else x
    steps, batch, width = shape_of(x)
    size, way = n.get("hidden_size"), n.get("direction", "forward")
    lengths = n.array(4, "sequence_lens")
    if lengths is not None and not (lengths == steps).all():
        n.refuse("sequences of different lengths are not supported")
    directions = 2 if way == "bidirectional" else 1
    outs, lasts, cells = [], [], []
    for d in range(directions):
        w, r, wb, rb, peep = _direction(n, d)
        every = relay.reshape(c.linear(relay.reshape(x, (steps * batch, width)), w, wb), (steps, batch, _GATES[n.op] * size))
        h, cell = (_initial(n, k, d, batch, size, x) for k in (5, 6))
        project = c.element(n.input(8), 0, d) if n.has(8) else None
        fs, order = _activations(n, d), list(budget.times(steps))
        back = way == "reverse" or d == 1
        ys = []
        for t in order[::-1] if back else order:
            row = c.element(every, 0, t)
            h, cell = _STEP[n.op](n, fs, row, h, cell, r, rb, peep, size)
            h = h if project is None else c.linear(h, project)
            ys.append(h)
        outs.append(relay.stack(ys[::-1] if back else ys, 0))
        lasts.append(h)
        cells.append(cell)
    results = [relay.stack(outs, 1), relay.stack(lasts, 0), relay.stack(cells, 0) if n.op == "LSTM" else None]
    if n.get("layout"):
        turn = [[2, 0, 1, 3], [1, 0, 2], [1, 0, 2]]
        results = [None if y is None else relay.transpose(y, p) for y, p in zip(results, turn)]
    return [y for y in results if y is not None]


def _initial(n, i, d, batch, size, x):
    if i == 6 and n.op != "LSTM":
        return None
    if n.has(i):
        e = relay.transpose(n.input(i), [1, 0, 2]) if n.get("layout") else n.input(i)
        return c.element(e, 0, d)
    return array(filled((batch, size), 0.0), dtype_of(x))
