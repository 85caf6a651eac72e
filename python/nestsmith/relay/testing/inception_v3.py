"""Inception v3 (NCHW)."""

from ..expr import Function, free_vars, var
from ..op import concatenate, nn
from ..ty import TensorType
from . import layers
from .init import create_workload

__all__ = ["get_net", "get_workload"]


def _c(x, n, k=1, s=1, p=0, name="", suffix=""):
    k, p = ((v, v) if isinstance(v, int) else v for v in (k, p))
    y = layers.conv2d(x, channels=n, kernel_size=k, strides=(s, s), padding=p, name=f"{name}{suffix}_conv1")
    return nn.relu(layers.batch_norm_infer(y, f"{name}{suffix}_bn", epsilon=2e-5, scale=False))


def _pool(x, kind, s=1, p=0, k=3):
    if kind == "max":
        return nn.max_pool2d(x, pool_size=(k, k), strides=(s, s), padding=(p, p))
    return nn.avg_pool2d(x, pool_size=(k, k), strides=(s, s), padding=(p, p), count_include_pad=True)


def _chain(x, name, steps):
    for suffix, n, k, s, p in steps:
        x = _c(x, n, k, s, p, name, suffix)
    return x


def _a(x, name, n1, r5, n5, r3, a, b, pool):
    return concatenate(
        (
            _c(x, n1, name=name, suffix="_conv"),
            _chain(x, name + "_tower", [("_conv", r5, 1, 1, 0), ("_conv_1", n5, 5, 1, 2)]),
            _chain(x, name + "_tower_1", [("_conv", r3, 1, 1, 0), ("_conv_1", a, 3, 1, 1), ("_conv_2", b, 3, 1, 1)]),
            _c(_pool(x, "avg", 1, 1), pool, name=name, suffix="_tower_2_conv"),
        ),
        axis=1,
    )


def _b(x, name, n, r, a, b):
    return concatenate(
        (
            _c(x, n, 3, 2, name=name, suffix="_conv"),
            _chain(x, name + "_tower", [("_conv", r, 1, 1, 0), ("_conv_1", a, 3, 1, 1), ("_conv_2", b, 3, 2, 0)]),
            _pool(x, "max", 2),
        ),
        axis=1,
    )


def _cblock(x, name, n1, r, a, b, q, q1, q2, q3, q4, pool):
    h, v = ((1, 7), (0, 3)), ((7, 1), (3, 0))
    t = [("_conv", r, 1, 1, 0), ("_conv_1", a, h[0], 1, h[1]), ("_conv_2", b, v[0], 1, v[1])]
    t1 = [("_conv", q, 1, 1, 0)] + [
        (f"_conv_{i + 1}", n, kp[0], 1, kp[1]) for i, (n, kp) in enumerate(zip((q1, q2, q3, q4), (v, h, v, h)))
    ]
    return concatenate(
        (
            _c(x, n1, name=name, suffix="_conv"),
            _chain(x, name + "_tower", t),
            _chain(x, name + "_tower_1", t1),
            _c(_pool(x, "avg", 1, 1), pool, name=name, suffix="_tower_2_conv"),
        ),
        axis=1,
    )


def _d(x, name, r, n, q, a, b, d):
    return concatenate(
        (
            _chain(x, name + "_tower", [("_conv", r, 1, 1, 0), ("_conv_1", n, 3, 2, 0)]),
            _chain(
                x,
                name + "_tower_1",
                [
                    ("_conv", q, 1, 1, 0),
                    ("_conv_1", a, (1, 7), 1, (0, 3)),
                    ("_conv_2", b, (7, 1), 1, (3, 0)),
                    ("_conv_3", d, 3, 2, 0),
                ],
            ),
            _pool(x, "max", 2),
        ),
        axis=1,
    )


def _e(x, name, pool_kind, n1, r, a, b, q, m, e, f, pool):
    t = _c(x, r, name=name, suffix="_tower_conv")
    branches = [
        _c(x, n1, name=name, suffix="_conv"),
        _c(t, a, (1, 3), 1, (0, 1), name, "_tower_mixed_conv"),
        _c(t, b, (3, 1), 1, (1, 0), name, "_tower_mixed_conv_1"),
    ]
    u = _chain(x, name + "_tower_1", [("_conv", q, 1, 1, 0), ("_conv_1", m, 3, 1, 1)])
    branches += [_c(u, e, (1, 3), 1, (0, 1), name, "_tower_1_mixed_conv"),
                 _c(u, f, (3, 1), 1, (1, 0), name, "_tower_1_mixed_conv_1"),
                 _c(_pool(x, pool_kind, 1, 1), pool, name=name, suffix="_tower_2_conv")]  # fmt: skip
    return concatenate(branches, axis=1)


def get_net(batch_size, num_classes, image_shape, dtype):
    """The network as a function."""
    y = var("data", TensorType((batch_size, *image_shape), dtype))
    y = _c(y, 32, 3, 2, name="conv")
    y = _c(_c(y, 32, 3, name="conv_1"), 64, 3, 1, 1, name="conv_2")
    y = _c(_c(_pool(y, "max", 2), 80, name="conv_3"), 192, 3, name="conv_4")
    y = _pool(y, "max", 2)
    for name, pool in (("mixed", 32), ("mixed_1", 64), ("mixed_2", 64)):
        y = _a(y, name, 64, 48, 64, 64, 96, 96, pool)
    y = _b(y, "mixed_3", 384, 64, 96, 96)
    for name, w in (("mixed_4", 128), ("mixed_5", 160), ("mixed_6", 160), ("mixed_7", 192)):
        y = _cblock(y, name, 192, w, w, 192, w, w, w, w, 192, 192)
    y = _d(y, "mixed_8", 192, 320, 192, 192, 192, 192)
    for name, kind in (("mixed_9", "avg"), ("mixed_10", "max")):
        y = _e(y, name, kind, 320, 384, 384, 384, 448, 384, 384, 384, 192)
    y = nn.batch_flatten(_pool(y, "avg", 1, 0, 8))
    y = nn.dense(y, var("fc1_weight"), units=num_classes)
    y = nn.softmax(nn.bias_add(y, var("fc2_bias"), axis=-1))
    return Function(free_vars(y), y)


def get_workload(batch_size=1, num_classes=1000, image_shape=(3, 299, 299), dtype="float32"):
    """(module, parameters) of Inception v3."""
    return create_workload(get_net(batch_size, num_classes, image_shape, dtype))
