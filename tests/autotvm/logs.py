"""Records of templates for tests."""

import json

MALI = "opencl -keys=mali,opencl,gpu -device=mali -max_num_threads=256 -thread_warp_size=1"
# the record of the format's description
RECORD = {
    "input": [
        MALI, "conv2d_nchw_spatial_pack.mali",
        [["TENSOR", [1, 64, 56, 56], "float32"], ["TENSOR", [64, 64, 3, 3], "float32"], [1, 1], [1, 1, 1, 1], [1, 1], "float32"],
        {},
    ],
    "config": {
        "index": 2760483, "code_hash": None,
        "entity": [
            ["tile_co", "sp", [-1, 2, 8]], ["tile_oh", "sp", [-1, 1, 2]], ["tile_ow", "sp", [-1, 7, 4]],
            ["reorder_0", "re", [0, 1, 2, 3, 4, 5, 6, 9, 7, 8]], ["ann_reduce", "an", ["unroll", "none"]],
            ["ann_spatial", "an", ["unroll", "unroll", "vec"]],
        ],
    },
    "result": [[0.0123], 0, 1.87, 1606000000.12], "version": 0.2, "tvm_version": "0.8.dev0",
}  # fmt: skip


def record(target=MALI, task="conv2d_nchw_spatial_pack.mali", args=None, cost=0.0123, index=2760483, error=0, **more):
    """A line of a log."""
    out = json.loads(json.dumps(RECORD))
    out["input"][:2] = [target, task]
    if args is not None:
        out["input"][2] = args
    out["config"]["index"] = index
    out["config"]["entity"][0][2][2] = index % 64 + 1
    out["result"][:2] = [[cost] if isinstance(cost, float) else cost, error]
    return json.dumps({**out, **more}) + "\n"
