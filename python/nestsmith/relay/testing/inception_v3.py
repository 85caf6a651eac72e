"""Inception v3 (NCHW)."""

from ..expr import var
from ..op import concatenate, nn
from . import layers
from .init import create_workload

__all__ = ["get_net", "get_workload"]


def _c(x, n, k=1, s=1, p=0, name="", suffix=""):
    y = layers.conv2d(x, channels=n, kernel_size=k, strides=s, padding=p, name=f"{name}{suffix}_conv1")
    return nn.relu(layers.batch_norm_infer(y, f"{name}{suffix}_bn", epsilon=2e-5, scale=False))


def _pool(x, kind, s=1, p=0, k=3):
    if kind == "max":
        return nn.max_pool2d(x, pool_size=k, strides=s, padding=p)
    return nn.avg_pool2d(x, pool_size=k, strides=s, padding=p, count_include_pad=True)


def _chain(x, name, *steps):
    """Convolutions (channels, kernel, stride, padding), one after the other."""
    for k, step in enumerate(steps):
        x = _c(x, *step, name=name, suffix=f"_conv_{k}" if k else "_conv")
    return x


_ROW, _COLUMN = ((1, 7), 1, (0, 3)), ((7, 1), 1, (3, 0))


def _a(x, name, n1, r5, n5, r3, a, b, pool):
    return concatenate((_chain(x, name, (n1,)),
                        _chain(x, name + "_tower", (r5,), (n5, 5, 1, 2)),
                        _chain(x, name + "_tower_1", (r3,), (a, 3, 1, 1), (b, 3, 1, 1)),
                        _chain(_pool(x, "avg", 1, 1), name + "_tower_2", (pool,))), axis=1)  # fmt: skip


def _b(x, name, n, r, a, b):
    return concatenate((_chain(x, name, (n, 3, 2)),
                        _chain(x, name + "_tower", (r,), (a, 3, 1, 1), (b, 3, 2)),
                        _pool(x, "max", 2)), axis=1)  # fmt: skip


def _cblock(x, name, n1, r, a, b, q, q1, q2, q3, q4, pool):
    return concatenate((_chain(x, name, (n1,)),
                        _chain(x, name + "_tower", (r,), (a, *_ROW), (b, *_COLUMN)),
                        _chain(x, name + "_tower_1", (q,), (q1, *_COLUMN), (q2, *_ROW), (q3, *_COLUMN), (q4, *_ROW)),
                        _chain(_pool(x, "avg", 1, 1), name + "_tower_2", (pool,))), axis=1)  # fmt: skip


def _d(x, name, r, n, q, a, b, d):
    return concatenate((_chain(x, name + "_tower", (r,), (n, 3, 2)),
                        _chain(x, name + "_tower_1", (q,), (a, *_ROW), (b, *_COLUMN), (d, 3, 2)),
                        _pool(x, "max", 2)), axis=1)  # fmt: skip


def _e(x, name, pool_kind, n1, r, a, b, q, m, e, f, pool):
    def mixed(y, tower, row, column):
        return (_c(y, row, (1, 3), 1, (0, 1), name, tower + "_mixed_conv"),
                _c(y, column, (3, 1), 1, (1, 0), name, tower + "_mixed_conv_1"))  # fmt: skip

    return concatenate((_chain(x, name, (n1,)),
                        *mixed(_chain(x, name + "_tower", (r,)), "_tower", a, b),
                        *mixed(_chain(x, name + "_tower_1", (q,), (m, 3, 1, 1)), "_tower_1", e, f),
                        _chain(_pool(x, pool_kind, 1, 1), name + "_tower_2", (pool,))), axis=1)  # fmt: skip


def get_net(batch_size, num_classes, image_shape, dtype):
    """The network as a function."""
    y = layers.data(batch_size, image_shape, dtype)
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
    return layers.network(y)


def get_workload(batch_size=1, num_classes=1000, image_shape=(3, 299, 299), dtype="float32"):
    """(module, parameters) of Inception v3."""
    return create_workload(get_net(batch_size, num_classes, image_shape, dtype))
