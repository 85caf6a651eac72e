"""All 24 tasks of ResNet-18 at full shapes: the public schedule and states sampled by the reference and by ourselves
must compute exactly what the unscheduled program computes, on the CPU and on an OpenCL device (which has the semantics
of a GPU). The unscheduled program in turn is compared with PyTorch and NumPy."""

import numpy as np
import pytest
from candidates import OPENCL, dag, device, expected, lines, own_states, run, sampled, usable
from networks_of_reference import ENGINE

import helpers
from nestsmith import _core
from nestsmith.relay.op.nn import winograd_matrices

KINDS = [t[1] for t in helpers.RESNET18]
PUBLIC = lines("tvm-resnet-18-NHWC-B1-cuda.json.gz")
SEVEN = 7  # a public record and this many states more: at least the five that are asked for


def tolerance(index):
    """Sums of small integers are exact in any order; exponentials are not."""
    return 1e-5 if KINDS[index] == "softmax" else 0.0


def least(index):
    """Candidates that a full test must have seen; pools and the like have small spaces."""
    return 6 if KINDS[index] in ("conv", "wino", "dense") else 3


def cpu_candidates(index, count):
    """(steps, layout option): the reference's, then our own."""
    peer = [(s, 2 * (k % 2)) for k, s in enumerate(sampled("resnet-18-NHWC-llvm").get(dag(index).workload_key(), []))]
    out = peer[: max(1, count - 2)]
    return out + [(s, 2) for s in own_states(index, ENGINE["llvm"], count - len(out), 5)]


def gpu_candidates(index, count, lanes=False):
    """The public record, the reference's states that fit the device, and our own; CUDA alone has products by lanes."""
    key = dag(index).workload_key()
    peer = [s for s in sampled("resnet-18-NHWC-cuda").get(key, []) if usable(s, index)]
    out = [PUBLIC[key][6], *peer][: max(1, count - 2)]
    return [(s, 0) for s in out + own_states(index, ENGINE["cuda"], count - len(out), 5, lane_products=int(lanes))]


def check(index, name, target, candidates):
    dev, why = device(name)
    if dev is None:
        pytest.skip(why)
    wrong = [
        (steps, layout, d)
        for steps, layout in candidates
        if not (d := run(index, steps, target, dev, layout)) <= tolerance(index)
    ]
    assert not wrong, wrong
    return len(candidates)


FEW = [0, 5, 9, 10, 20, 22]  # a convolution, a Winograd convolution, and every kind that is small


@pytest.mark.some(2)
@pytest.mark.parametrize("index", FEW)
def test_a_few_on_the_cpu(index):
    assert check(index, "cpu", ENGINE["llvm"], cpu_candidates(index, 2)) >= 2


@pytest.mark.some(3)
@pytest.mark.parametrize("index", FEW)
def test_a_few_on_opencl(index):
    assert check(index, "opencl", OPENCL, gpu_candidates(index, 2)) >= 2


@pytest.mark.full
@pytest.mark.parametrize("index", range(24))
def test_all_on_the_cpu(index):
    assert check(index, "cpu", ENGINE["llvm"], cpu_candidates(index, SEVEN)) >= least(index)


@pytest.mark.full
@pytest.mark.parametrize("index", range(24))
def test_all_on_opencl(index):
    assert check(index, "opencl", OPENCL, gpu_candidates(index, SEVEN)) >= least(index)


@pytest.mark.gpu
@pytest.mark.parametrize("index", range(24))
def test_all_on_cuda(index):
    dev, why = device("cuda")
    if dev is None:
        pytest.skip(why)
    target = _core.Target("cuda", sm=dev.info()["sm"])
    assert check(index, "cuda", target, gpu_candidates(index, SEVEN, dev.info()["sm"] >= 80)) >= least(index)


# ---- the unscheduled program against other implementations ----


def winograd(x, u, tile):
    """The convolution whose transformed weight is u, tile by tile, in double precision."""
    a, b, _ = winograd_matrices(tile, 3)
    n, alpha = -(-x.shape[1] // tile), tile + 2
    p = np.pad(x[0].astype("float64"), [(1, alpha + tile * n - x.shape[1]), (1, alpha + tile * n - x.shape[2]), (0, 0)])
    y = np.empty((n * tile, n * tile, u.shape[2]))
    for i in range(n):
        for j in range(n):
            d = p[i * tile : i * tile + alpha, j * tile : j * tile + alpha]
            v = np.einsum("ea,efc,fb->abc", b, d, b)
            m = np.einsum("abc,aboc->abo", v, u)
            y[i * tile : (i + 1) * tile, j * tile : (j + 1) * tile] = np.einsum("ap,abo,bq->pqo", a, m, a)
    return y[None, : x.shape[1], : x.shape[2]]


def independent(index):
    """(what PyTorch or NumPy computes from the task's inputs, what the unscheduled program computed)"""
    import torch
    import torch.nn.functional as F

    _, kind, *a = helpers.RESNET18[index]
    ins = [
        np.frombuffer(d, "float32").reshape([int(n) for n in t.shape])
        for d, t in zip(expected(index), dag(index).tensors)
    ]
    want = ins.pop()
    x = torch.from_numpy(ins[0].copy()).double()
    if kind == "softmax":
        return F.softmax(x, 1).numpy(), want
    if kind == "dense":
        return (x @ torch.from_numpy(ins[1].copy()).double().T).numpy() + ins[2], want
    if kind == "gap":
        return x.mean((1, 2), keepdim=True).numpy(), want
    tail = a[-1] if kind != "maxpool" else "Br"
    if kind == "maxpool":
        y, rest = F.max_pool2d(x.permute(0, 3, 1, 2), 3, 2, 1).permute(0, 2, 3, 1).numpy(), ins[1:]
    elif kind == "conv":
        w = torch.from_numpy(ins[1].copy()).double().permute(3, 2, 0, 1)
        y = F.conv2d(x.permute(0, 3, 1, 2), w, stride=a[4], padding=a[3] // 2).permute(0, 2, 3, 1).numpy()
        rest = ins[2:]
    else:
        y, rest = winograd(ins[0], ins[1].astype("float64"), ins[1].shape[0] - 2), ins[2:]
    for o in tail:
        if o == "r":
            y = np.maximum(y, 0)
        elif o == "M":
            y = y * rest.pop(0)
        else:
            y = y + rest.pop(0)
    return y, want


@pytest.mark.some(7)
@pytest.mark.parametrize("index", range(24))
def test_the_unscheduled_program_against_other_implementations(index):
    got, want = independent(index)
    assert got.shape == want.shape
    error = np.abs(got - want).max() / np.abs(want).max()
    assert error <= (1e-6 if KINDS[index] == "gap" else tolerance(index))
