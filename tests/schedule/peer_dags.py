"""Compute DAGs of the reference networks' tasks, rebuilt from a task's key and stage names."""

import functools
import gzip
import json
from pathlib import Path

from nestsmith import _core, te, topi

DATA = Path(__file__).parent.parent / "data"


def _tail(y, stages, params):
    """The element-wise stages behind the main operator, each with the next parameter where it needs one."""
    for name in stages:
        if name == "T_add":
            y = topi.add(y, params.pop(0))
        elif name == "T_multiply":
            y = topi.multiply(y, params.pop(0))
        elif name == "T_relu":
            y = topi.relu(y)
    return y


@functools.cache
def dag_of(key, stages):
    """The DAG with this key and these stage names (a tuple); asserts that the key comes out again."""
    *shapes, out = json.loads(key)[1:]
    with topi.naming("p", "pool"):
        layout = "NHWC" if len(shapes[0]) == 4 and shapes[0][1] == shapes[0][2] else "NCHW"  # of pools: maps are square
        inputs = [te.placeholder(s, name=f"p{i}") for i, s in enumerate(shapes)]
        p = list(inputs)
        x = p.pop(0)
        if "conv2d_nhwc" in stages:
            w = p.pop(0)
            y = topi.nn.conv2d_nhwc(x, w, -(-shapes[0][1] // out[1]), shapes[1][0] // 2, 1)
        elif "conv2d_nchw" in stages:
            w = p.pop(0)
            y = topi.nn.conv2d_nchw(x, w, -(-shapes[0][2] // out[2]), shapes[1][2] // 2, 1)
        elif "DepthwiseConv2d" in stages:
            y = topi.nn.depthwise_conv2d_nhwc(x, p.pop(0), -(-shapes[0][1] // out[1]), 1)
        elif "conv2d_winograd" in stages:
            y = topi.nn.conv2d_winograd_nhwc_without_weight_transform(x, p.pop(0), 1, 1, 1)
        elif "T_softmax_norm" in stages:
            y = topi.nn.softmax(x)
        elif "adaptive_pool_avg" in stages:
            y = topi.nn.global_pool(x, "avg", layout)
        elif "pool_max" in stages:
            y = topi.nn.pool2d(x, 3, 2, 1, 1, "max", layout=layout)
        else:
            y = topi.nn.dense(x, p.pop(0))
        y = _tail(y, stages, p)
    dag = _core.ComputeDAG([*inputs, y])
    assert dag.workload_key() == key
    return dag


@functools.cache
def peer_tasks():
    with gzip.open(DATA / "peer-states.json.gz") as f:
        return json.load(f)
