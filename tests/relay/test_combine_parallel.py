"""Products that read the same data become one: what is combined, what is not, and that the values stay."""

import numpy as np
import pytest
from levels import function, outputs
from relay_reference import evaluate, relative_error

from nestsmith import auto_scheduler, relay, transform
from nestsmith.relay.expr import Call, post_order

nn = relay.nn
CONV, DENSE, MATMUL = (
    relay.transform.CombineParallelConv2D, relay.transform.CombineParallelDense, relay.transform.CombineParallelBatchMatmul,
)  # fmt: skip


def X(*shape, name="x"):
    return relay.var(name, shape=shape)


def combined(body, make, least=3):
    with transform.PassContext(opt_level=4):
        return make(least)(relay.transform.InferType()(function(body)))


def count(f, name):
    return sum(isinstance(e, Call) and e.op_name == name for e in post_order(f.body))


def conv(x, k, channels, size=1, layout="NCHW", **more):
    shape = (channels, 8, size, size) if layout == "NCHW" else (size, size, 8, channels)
    kernel = "OIHW" if layout == "NCHW" else "HWIO"
    w = X(*shape, name=f"w{k}")
    return nn.conv2d(x, w, channels=channels, kernel_size=(size, size), padding=size // 2, data_layout=layout, kernel_layout=kernel, **more)


def check(body, make, name, left, least=3):
    f = relay.transform.InferType()(function(body))
    g = combined(body, make, least)
    assert count(g, name) == left, g
    rng = np.random.default_rng(0)
    values = {p.name_hint: rng.uniform(-1, 1, p.checked_type.shape).astype("float32") for p in f.params}
    got, want = (evaluate(relay.transform.InferType()(h), values) for h in (g, f))
    for a, b in zip(*(v if isinstance(v, list) else [v] for v in (got, want))):
        assert a.shape == b.shape and relative_error(a, b) < 1e-5
    return g


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_branches_of_convolutions_with_what_follows(layout):
    """As in an Inception block: channels differ, biases and activations are taken along, joins are not."""
    x = X(1, 8, 5, 5) if layout == "NCHW" else X(1, 5, 5, 8)
    lift = (lambda n: (n, 1, 1)) if layout == "NCHW" else (lambda n: (n,))
    axis = 1 if layout == "NCHW" else 3
    a, b, c = (nn.relu(relay.add(conv(x, k, n, layout=layout), X(*lift(n), name=f"b{k}"))) for k, n in enumerate((4, 6, 2)))
    d = nn.relu(conv(x, 3, 4, 3, layout=layout))  # of another size
    g = check(relay.concatenate([a, conv_of(b, layout), c, d], axis), CONV, "nn.conv2d", 3)
    assert count(g, "nn.relu") == 2 and count(g, "add") == 1 and count(g, "strided_slice") == 3


def conv_of(x, layout):
    shape = (3, 6, 3, 3) if layout == "NCHW" else (3, 3, 6, 3)
    kernel = "OIHW" if layout == "NCHW" else "HWIO"
    return nn.conv2d(x, X(*shape, name="inner"), channels=3, kernel_size=(3, 3), padding=1, data_layout=layout, kernel_layout=kernel)


def test_what_follows_is_taken_along_only_where_it_is_alike():
    x, low = X(1, 8, 4, 4), relay.const(0.5)
    branches = [conv(x, k, 4) for k in range(3)]
    g = check(relay.Tuple([relay.add(b, low) for b in branches]), CONV, "nn.conv2d", 1)
    assert count(g, "add") == 1  # the same number for all
    g = check(relay.Tuple([relay.add(b, relay.const(float(k))) for k, b in enumerate(branches)]), CONV, "nn.conv2d", 1)
    assert count(g, "add") == 3
    g = check(relay.Tuple([nn.bias_add(b, X(4, name=f"b{k}")) for k, b in enumerate(branches)]), CONV, "nn.conv2d", 1)
    assert count(g, "nn.bias_add") == 1
    g = check(relay.Tuple([nn.relu(b) for b in branches[:2]] + [relay.exp(branches[2])]), CONV, "nn.conv2d", 1)
    assert count(g, "nn.relu") == 2
    g = check(relay.Tuple([*branches, nn.relu(branches[0])]), CONV, "nn.conv2d", 1)  # read twice
    assert count(g, "nn.relu") == 1
    g = check(relay.Tuple([relay.subtract(branches[0], low), *(relay.subtract(low, b) for b in branches[1:])]), CONV, "nn.conv2d", 1)
    assert count(g, "subtract") == 3
    g = check(relay.Tuple([relay.multiply(b, b) for b in branches]), CONV, "nn.conv2d", 1)
    assert count(g, "multiply") == 3
    gates = [relay.multiply(branches[0], branches[1]), relay.multiply(branches[1], branches[2]), branches[2]]
    check(relay.Tuple(gates), CONV, "nn.conv2d", 1)


def test_what_is_not_combined():
    x = X(1, 8, 4, 4)
    check(relay.Tuple([conv(x, 0, 4), conv(x, 1, 4)]), CONV, "nn.conv2d", 2)  # too few
    check(relay.Tuple([conv(x, 0, 4), conv(x, 1, 4)]), CONV, "nn.conv2d", 1, least=2)
    check(relay.Tuple([conv(x, 0, 4), conv(x, 1, 4, 3), conv(x, 2, 4, strides=(2, 2))]), CONV, "nn.conv2d", 3)
    grouped = [nn.conv2d(x, X(8, 1, 3, 3, name=f"w{k}"), channels=8, kernel_size=(3, 3), groups=8) for k in range(3)]
    check(relay.Tuple(grouped), CONV, "nn.conv2d", 3)
    w = X(4, 8, 1, 1, name="w")
    one = [nn.conv2d(x, w, channels=4, kernel_size=(1, 1)) for _ in range(3)]
    check(relay.Tuple(one), CONV, "nn.conv2d", 3)  # one weight: a common subexpression
    made = relay.reshape(relay.mean(conv(x, 0, 32), (2, 3)), (4, 8, 1, 1))  # a weight that a branch computes
    check(relay.Tuple([conv(x, 1, 32), conv(x, 2, 32), nn.conv2d(x, made, channels=4, kernel_size=(1, 1))]), CONV, "nn.conv2d", 2)


def test_dense_layers_and_products_of_batches():
    x = X(6, 8)
    branches = [relay.add(nn.dense(x, X(n, 8, name=f"w{n}")), X(n, name=f"b{n}")) for n in (3, 5, 4)]
    g = check(relay.Tuple([relay.reshape(b, (-1,)) for b in branches]), DENSE, "nn.dense", 1)
    assert count(g, "add") == 1
    x = X(2, 6, 8)
    check(relay.Tuple([nn.batch_matmul(x, X(2, n, 8, name=f"w{n}")) for n in (3, 5, 4)]), MATMUL, "nn.batch_matmul", 1)
    plain = [nn.batch_matmul(x, X(2, 8, n, name=f"w{n}"), transpose_b=False) for n in (3, 5, 4)]
    check(relay.Tuple(plain), MATMUL, "nn.batch_matmul", 1)


def test_only_at_level_4_and_then_it_runs():
    """One task instead of three; the compiled network computes the same."""
    x = X(4, 8)
    body = relay.concatenate([nn.relu(nn.dense(x, X(n, 8, name=f"w{n}"))) for n in (3, 5, 4)], 1)
    tasks = {}
    for level in (3, 4):
        with transform.PassContext(opt_level=level):
            tasks[level] = len(auto_scheduler.extract_tasks(function(body), {}, "llvm", opt_level=level)[0])
    assert tasks == {3: 3, 4: 1}
    rng = np.random.default_rng(0)
    values = {p.name_hint: rng.normal(size=p.type_annotation.concrete_shape).astype("float32") for p in function(body).params}
    three, four = (outputs(body, values, level)[0] for level in (3, 4))
    assert relative_error(four, three) < 1e-5


def test_mistakes():
    for make in (CONV, DENSE, MATMUL):
        with pytest.raises(ValueError, match="min_num_branches is 1"):
            make(1)
