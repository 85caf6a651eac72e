"""Products whose sizes divide nothing, searched with tensor cores and by lanes, and data with exact results: for the interpreter and for GPUs."""

import re

import numpy as np

from nestsmith import _core, auto_scheduler, te, topi
from nestsmith.numerics import is_float, to_bfloat16

TARGET = "cuda -arch=sm_90"
# element type (of data and of weights, where they differ), math of the task
ALLOWED = (("float16", None), ("bfloat16", None), ("float32", "tf32"), ("float32", "float32x3"), ("float32", "strict"))
ALLOWED += (("int8", None), ("uint8 int8", None), ("uint8", None), ("int8 uint8", None))
ALLOWED += (("float16", "fp16_accumulation"),)  # exact, too: sums of small whole numbers are small


def types(dtype):
    """Of data, of weights, and the operator's `out_dtype`: integers are added up in 32 bits."""
    data, weight = (dtype.split() * 2)[:2]
    return data, weight, None if is_float(data) else "int32"


def dense(m, n, k, dtype):
    data, weight, out = types(dtype)
    a, b = te.placeholder((m, k), data, name="A"), te.placeholder((n, k), weight, name="B")
    return [a, b, topi.nn.relu(topi.nn.dense(a, b, out_dtype=out))]


def winograd(size, ci, co, dtype="float32"):
    """A convolution with a transformed weight and a residual: exact, for the transforms' fractions are halves and quarters."""
    x, w = te.placeholder((1, size, size, ci), dtype, name="X"), te.placeholder((6, 6, co, ci), name="W")
    y, r = topi.nn.conv2d_winograd_nhwc_without_weight_transform(x, w, 1, 1, 1, dtype), te.placeholder((1, size, size, co), dtype, name="R")
    return [x, w, r, topi.nn.relu(topi.add(y, r))]


def ragged(rng, dtype):
    """A dense layer, a batched product or a convolution whose sizes are any numbers."""
    kind = rng.integers(4)
    data, weight, out = types(dtype)
    if kind == 0:
        return dense(*(int(x) for x in rng.integers(2, 70, 3)), dtype)
    if kind == 1:
        b, m, n, k = (int(x) for x in rng.integers(2, 30, 4))
        x, y = te.placeholder((b, m, k), data, name="X"), te.placeholder((b, n, k), weight, name="Y")
        return [x, y, topi.nn.batch_matmul(x, y, out_dtype=out)]
    h, w, ci, co = (int(x) for x in rng.integers(5, 12, 4))
    n, k = int(rng.integers(1, 3)), int(rng.choice([1, 3, 5]))
    stride, pad, dilation = int(rng.integers(1, 3)), int(rng.integers(0, 3)), int(rng.integers(1, 3))
    pad, groups = max(pad, dilation * (k - 1) // 2), int(rng.choice([1, 1, 2, 3]))
    return grouped(("NHWC", "NCHW")[kind - 2], (n, h, w), (groups, ci, co), k, (stride, pad, dilation), dtype)


def grouped(layout, image, channels, kernel, window, dtype):
    """A convolution; channels: groups, and those of each."""
    (n, h, w), (g, ci, co), (data, weight, out) = image, channels, types(dtype)
    x, f, kernel_layout = {
        "NHWC": ((n, h, w, g * ci), (kernel, kernel, ci, g * co), "HWIO"),
        "NCHW": ((n, g * ci, h, w), (g * co, ci, kernel, kernel), "OIHW"),
    }[layout]
    x, f = te.placeholder(x, data, name="X"), te.placeholder(f, weight, name="W")
    return [x, f, topi.nn.relu(topi.nn.conv(x, f, *window, g, layout, kernel_layout, out))]


def policy(tensors, seed=1, math=None, target=TARGET, model="random", **params):
    task = auto_scheduler.SearchTask(
        compute_dag=auto_scheduler.ComputeDAG(tensors), workload_key="tensor cores", target=target, math=math
    )
    return auto_scheduler.SketchPolicy(task, model, params=params, seed=seed, verbose=0)


def has_step(state):
    return "tensor cores" in str(state) or by_lanes(state)


def tiles(text):
    """What the text of a state says of its product by tensor cores or lanes, "ordinary" if there is none."""
    found = re.search(r"(?:tensor cores|product by lanes): (.*)", text)
    return found.group(1) if found else "ordinary"


def by_lanes(state):
    return "product by lanes" in str(state)


def by_warpgroups(state):
    return "warpgroups" in str(state)


def by_last_block(state):
    return "last block adds up" in str(state)


def defined(tensors, seed=0):
    """Small whole numbers for the inputs, and the definition's result, last."""
    rng = np.random.default_rng(seed)
    data = [rng.integers(-4, 5, [int(x) for x in t.shape]) for t in tensors]
    data = [to_bfloat16(x) if t.dtype == "bfloat16" else x.astype(t.dtype) for x, t in zip(data, tensors)]
    _core.interp_dag(_core.ComputeDAG(tensors), data)
    return data


def errors(result, a, b):
    """Of a product with b's transpose, against float64: the largest, the root of the mean of their squares, and the largest of the size of
    what is added up."""
    a, b = a.astype("float64"), b.astype("float64")
    off = np.abs(result - a @ b.T)
    return off.max(), np.sqrt((off**2).mean()), (off / (np.abs(a) @ np.abs(b).T)).max()


def unwritten(like):
    """An array of its kind that is wrong wherever nothing is stored: not a number throughout."""
    out = np.empty_like(like)
    out.view("uint8").fill(255)
    return out


def right(state, tensors, sm=90):
    """The program of the state in the interpreter, against the definition; as in a network whose launches overlap and whose weights are
    the second tensor."""
    want = defined(tensors)
    data = [*want[:-1], unwritten(want[-1])]
    report = _core.interp(state, _core.Target("cuda", sm=sm, overlap=2), data, stage="program", constant=2)
    assert report["findings"] == []
    np.testing.assert_array_equal(data[-1], want[-1])
