"""A kernel of our own text that makes y of x, an element a thread, in blocks of 256: below lowering and search."""

import json

from nestsmith import _core

N = 1 << 16
ADD = 'extern "C" __global__ void k(const float* __restrict__ x, float* __restrict__ y) { int i = blockIdx.x * 256 + threadIdx.x; %s }'


def manifest(entry="k", grid=N // 256, block=256, dyn=0, work=()):
    array = {"dtype": "float32", "shape": [N], "bytes": 4 * N, "align": 64}
    params = [{"kind": "arg", "index": 0, "read_only": True}, {"kind": "arg", "index": 1, "read_only": False}]
    kernel = {"name": entry, "params": params, "grid": [grid, 1, 1], "block": [block, 1, 1], "dyn_shared_bytes": dyn}
    args = [{**array, "name": "x", "read_only": True}, {**array, "name": "y", "read_only": False}]
    return json.dumps(
        {
            "format": 1,
            "target": "cuda",
            "entry": entry,
            "sm": sm(),
            "args": args,
            "work": list(work),
            "kernels": [kernel],
        }
    )


def sm():
    return _core.device_query(2, 0)["sm"]


def cubin(source):
    return _core.build(_core.Target("cuda", sm=sm()), source)[0]
