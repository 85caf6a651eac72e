"""An unrolled LSTM: every iteration calls a cell function; the state goes through let-bound variables."""

from ..expr import Call, Function, Let, Tuple, TupleGetItem, Var, free_vars, var
from ..op import add, multiply, sigmoid, split, tanh, zeros
from ..ty import TensorType, TupleType
from . import layers
from .init import create_workload

__all__ = ["lstm_cell", "get_net", "get_workload"]


def lstm_cell(num_hidden, batch_size=1, dtype="float32", name=""):
    """The cell as a function (inputs, (h, c), i2h weight, i2h bias, h2h weight, h2h bias) -> (output, (h, c))."""
    h = TensorType((batch_size, num_hidden), dtype)
    w, b = TensorType((4 * num_hidden, num_hidden), dtype), TensorType((4 * num_hidden,), dtype)
    inputs, states = Var("inputs", h), Var("states", TupleType([h, h]))
    i2h_w, i2h_b, h2h_w, h2h_b = Var("i2h_weight", w), Var("i2h_bias", b), Var("h2h_weight", w), Var("h2h_bias", b)
    i2h = layers.dense_add_bias(inputs, 4 * num_hidden, name + "i2h", i2h_w, i2h_b)
    h2h = layers.dense_add_bias(TupleGetItem(states, 0), 4 * num_hidden, name + "h2h", h2h_w, h2h_b)
    gate_i, gate_f, gate_t, gate_o = split(add(i2h, h2h), 4, axis=1)
    c = add(multiply(sigmoid(gate_f), TupleGetItem(states, 1)), multiply(sigmoid(gate_i), tanh(gate_t)))
    out = multiply(sigmoid(gate_o), tanh(c))
    return Function([inputs, states, i2h_w, i2h_b, h2h_w, h2h_b], Tuple([out, Tuple([out, c])]))


def get_net(iterations, num_hidden, batch_size=1, dtype="float32"):
    """The network as a function of one ``data`` variable per iteration and the weights."""
    t = TensorType((batch_size, num_hidden), dtype)
    bindings, state = [], Var("init")
    bindings.append((state, Tuple([zeros((batch_size, num_hidden), dtype), zeros((batch_size, num_hidden), dtype)])))
    cell, h = lstm_cell(num_hidden, batch_size, dtype), None
    for i in range(iterations):
        args = [var("data", t), state]
        for side in ("i2h", "h2h"):
            args += [var(f"{side}_{i}_weight", shape=(4 * num_hidden, num_hidden), dtype=dtype),
                     var(f"{side}_{i}_bias", shape=(4 * num_hidden,), dtype=dtype)]  # fmt: skip
        call = Var(f"call_{i}")
        bindings.append((call, Call(cell, args)))
        state, h = Var(f"state_{i}"), Var(f"out_{i}")
        bindings.append((h, TupleGetItem(call, 0)))
        bindings.append((state, TupleGetItem(call, 1)))
    body = h
    for v, value in reversed(bindings):
        body = Let(v, value, body)
    return Function(free_vars(body), body)


def get_workload(iterations, num_hidden, batch_size=1, dtype="float32"):
    """(module, parameters) of the LSTM."""
    return create_workload(get_net(iterations, num_hidden, batch_size, dtype))
