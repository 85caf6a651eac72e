"""The tasks of the ResNet-50 log of early 2021, under the stage names and keys of that time."""

from nestsmith import _core, te, topi


def conv(x, w, stride, pad):
    """The convolution with its weight free to be laid out anew."""
    n, h, _, _ = x.shape
    k, co = w.shape[0], w.shape[3]
    temp = topi.nn.pad(x, (0, pad, pad, 0), (0, pad, pad, 0), name="PaddedInput")
    ry, rx, rc = te.reduce_axis((0, k), "ry"), te.reduce_axis((0, k), "rx"), te.reduce_axis((0, w.shape[2]), "rc")
    o = (h - k + 2 * pad) // stride + 1
    return te.compute(
        (n, o, o, co),
        lambda nn, yy, xx, ff: te.sum(
            temp[nn, yy * stride + ry, xx * stride + rx, rc] * w[ry, rx, rc, ff], axis=[ry, rx, rc]
        ),
        name="Conv2dOutput",
        attrs={"layout_free_placeholders": [w]},
    )


def dag_of_2021(flat):
    """The DAG of a task of ResNet-50 from the flat list of dimensions in its key."""
    shapes = [flat[i : i + 4] for i in range(0, len(flat), 4)] if len(flat) > 4 else [flat[:2], flat[2:]]
    if flat[:2] == [1, 2048] and len(flat) == 8:
        shapes = [[1, 2048], [1000, 2048], [1, 1000], [1, 1000]]
    p, out = [te.placeholder(s, name="placeholder") for s in shapes[:-1]], shapes[-1]
    if len(out) == 2:
        y = topi.nn.softmax(p[0]) if len(p) == 1 else topi.add(topi.nn.dense(p[0], p[1]), p[2])
    elif len(p) == 1:
        y = topi.nn.global_pool(p[0], "avg", "NHWC")
    elif shapes[0][1] == 112 and shapes[1][0] == 1 and shapes[1][3] == 64 and len(p) == 2:
        y = topi.relu(topi.add(topi.nn.pool2d(p[0], 3, 2, 1, 1, "max", layout="NHWC"), p[1]))
    else:
        y = conv(p[0], p[1], -(-shapes[0][1] // out[1]), shapes[1][0] // 2)
        tail = p[2:]
        for i, q in enumerate(tail):
            y = topi.multiply(y, q) if len(tail) == 3 and i == 1 else topi.add(y, q)
        if tail and tail[-1].shape[1] == 1:
            y = topi.relu(y)
    return _core.ComputeDAG([*p, y])
