"""Products of matrices and convolutions on tensor cores beside cuBLAS and cuDNN, as PyTorch calls them.

    python benchmarks/tensor_cores.py [--groups cubes,bert1,...] [--types float16,tf32] [--trials 64] [--seconds 240] [--out FILE]
    python benchmarks/tensor_cores.py --dry [--groups ...] [--types ...]

Every case is a task that is tuned with so many trials (those of a group and type in one run, in turn), checked against PyTorch on small
integers, to the bit, and timed in turn with the peer's kernel, both in CUDA graphs of 20 calls. A row is kept in --rows as soon as it
is known, and what has a row is not measured again. The table is made of all rows: with the geometric means of each group.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "search")]
os.environ.setdefault("NESTSMITH_LOG_DIR", "")  # the log that is named, and no other

from tensor_core_cases import tiles  # noqa: E402

import nestsmith as ns  # noqa: E402
from nestsmith import _core, auto_scheduler, te, topi  # noqa: E402
from nestsmith.compiled import schedules  # noqa: E402
from nestsmith.numerics import PRECISIONS, tolerance  # noqa: E402

CALLS, REPEATS = 20, 11  # of a graph; of a measurement
# What the products are of: its math as tasks have it. int8 is added up in int32, by both sides; fp16_accumulation: float16 in float16.
MODES = {**PRECISIONS, "int8": None, "fp16_accumulation": "fp16_accumulation"}

BERT = (("QKV", 2304, 768), ("projection", 768, 768), ("up", 3072, 768), ("down", 768, 3072))  # columns, depth
HEADS, TOKENS, WIDTH = 12, 128, 64
RESNET50 = (  # height, channels in and out, kernel, stride
    (224, 3, 64, 7, 2),
    (56, 64, 64, 1, 1), (56, 64, 64, 3, 1), (56, 64, 256, 1, 1), (56, 256, 64, 1, 1),
    (56, 256, 128, 1, 1), (56, 128, 128, 3, 2), (28, 128, 512, 1, 1), (56, 256, 512, 1, 2), (28, 512, 128, 1, 1), (28, 128, 128, 3, 1),
    (28, 512, 256, 1, 1), (28, 256, 256, 3, 2), (14, 256, 1024, 1, 1), (28, 512, 1024, 1, 2), (14, 1024, 256, 1, 1), (14, 256, 256, 3, 1),
    (14, 1024, 512, 1, 1), (14, 512, 512, 3, 2), (7, 512, 2048, 1, 1), (14, 1024, 2048, 1, 2), (7, 2048, 512, 1, 1), (7, 512, 512, 3, 1),
)  # fmt: skip


class Product:
    """A[batch, m, k] times the transpose of B[batch, n, k]; no batch: dense."""

    def __init__(self, name, m, n, k, batch=0, columns=False):
        self.name, self.shape, self.batch = name, (m, n, k), batch
        self.columns = columns  # B is [batch, k, n]
        self.flops = 2 * m * n * k * max(1, batch)

    def tensors(self, dtype):
        m, n, k = self.shape
        lead = (self.batch,) if self.batch else ()
        a = te.placeholder((*lead, m, k), dtype, name="A")
        b = te.placeholder((*lead, k, n) if self.columns else (*lead, n, k), dtype, name="B")
        if dtype == "int8":
            return [a, b, topi.nn.dense(a, b, out_dtype="int32")]
        return [a, b, topi.nn.batch_matmul(a, b, transpose_b=not self.columns) if self.batch else topi.nn.dense(a, b)]

    def peer(self, torch, a, b):
        if a.dtype == torch.int8:
            return lambda: torch._int_mm(a, b.t())
        return lambda: torch.matmul(a, b if self.columns else b.transpose(-1, -2))


class Convolution:
    """A convolution in NHWC, its weights in HWIO, or in NCHW, its weights in either order."""

    def __init__(self, batch, height, ci, co, kernel, stride, layout="NHWC", weights="HWIO"):
        self.name, self.of = f"{kernel}x{kernel} {ci} to {co}, {height}x{height}" + ("/2" if stride == 2 else ""), (batch, height, ci, co)
        self.layout, self.weights = layout, weights
        self.kernel, self.stride, self.pad = kernel, stride, kernel // 2
        self.flops = 2 * batch * ((height - 1) // stride + 1) ** 2 * ci * co * kernel * kernel

    def tensors(self, dtype):
        batch, height, ci, co = self.of
        sides = {"N": batch, "H": height, "W": height, "C": ci}
        x = te.placeholder([sides[d] for d in self.layout], dtype, name="X")
        sides = {"H": self.kernel, "W": self.kernel, "I": ci, "O": co}
        w = te.placeholder([sides[d] for d in self.weights], dtype, name="W")
        if self.layout == "NHWC":
            return [x, w, topi.nn.conv2d_nhwc(x, w, self.stride, self.pad, 1)]
        oihw = w if self.weights == "OIHW" else topi.transpose(w, (3, 2, 0, 1))  # is inlined: the product reads w as it lies
        return [x, w, topi.nn.conv2d_nchw(x, oihw, self.stride, self.pad, 1)]

    def peer(self, torch, x, w):
        """PyTorch's own layouts: channels_last, or that of a tensor as it is made."""
        last = self.layout == "NHWC"
        form = torch.channels_last if last else torch.contiguous_format
        w = (w if self.weights == "OIHW" else w.permute(3, 2, 0, 1)).contiguous(memory_format=form)
        x = x.permute(0, 3, 1, 2) if last else x

        def call():
            y = torch.nn.functional.conv2d(x, w, stride=self.stride, padding=self.pad)
            return y.permute(0, 2, 3, 1) if last else y

        return call


def _bert(batch):
    heads = batch * HEADS
    rows = [Product(f"{name} {batch * TOKENS}x{n}x{k}", batch * TOKENS, n, k) for name, n, k in BERT]
    rows.append(Product(f"scores {heads}x{TOKENS}x{TOKENS}x{WIDTH}", TOKENS, TOKENS, WIDTH, heads))
    return [*rows, Product(f"context {heads}x{TOKENS}x{WIDTH}x{TOKENS}", TOKENS, WIDTH, TOKENS, heads, True)]


GROUPS = {
    "cubes": [Product(f"{n} cubed", n, n, n) for n in (512, 1024, 2048, 4096)],
    "bert1": _bert(1),
    "bert8": _bert(8),
    "resnet50-1": [Convolution(1, *c) for c in RESNET50],
    "resnet50-16": [Convolution(16, *c) for c in RESNET50],
    "nchw-oihw": [Convolution(1, *c, "NCHW", "OIHW") for c in RESNET50],
    "nchw-hwio": [Convolution(1, *c, "NCHW", "HWIO") for c in RESNET50],
}
LAYOUTS = ("resnet50-1", "nchw-oihw", "nchw-hwio")  # groups of the same convolutions: the first in NHWC


def stored_as(precision):
    """The element type of matrices that are multiplied in a precision."""
    return "float16" if precision == "fp16_accumulation" else precision if precision in ("float16", "bfloat16", "int8") else "float32"


def cases(group, precision):
    """PyTorch has one product of int8 alone: of two matrices."""
    return [c for c in GROUPS[group] if precision != "int8" or (isinstance(c, Product) and not c.batch)]


def task_of(case, precision, target="cuda"):
    """The task of a case, known by its tensors."""
    tensors = case.tensors(stored_as(precision))
    key = auto_scheduler.workload_registry.register_workload_tensors(_core.ComputeDAG(tensors).workload_key(), tensors)
    return auto_scheduler.SearchTask(workload_key=key, target=target, math=MODES[precision], desc=case.name)


def launcher(torch, state, tensors, arch, arrays):
    """The kernels of a state as a call on PyTorch's stream."""
    source, manifest = _core.program(state, tensors, ns.target.Target(f"cuda -arch={arch}").engine(), "kernel")
    manifest, source = json.loads(manifest), 'extern "C" {\n' + source + "\n}\n"
    capability = arch[3:] + ("a" if "wgmma" in source else "")  # instructions of this one GPU alone
    work = [torch.zeros(w["bytes"], dtype=torch.uint8, device="cuda") for w in manifest["work"]]
    calls = []
    for k in manifest["kernels"]:
        f = torch.cuda._compile_kernel(source, k["name"], compute_capability=capability)
        if k["dyn_shared_bytes"] >= 48 << 10:
            f.set_shared_memory_config(k["dyn_shared_bytes"])
        args = [arrays[p["index"]] if p["kind"] == "arg" else work[p["index"]] for p in k["params"]]
        calls.append((f, tuple(k["grid"]), tuple(k["block"]), args, k["dyn_shared_bytes"]))

    def run():
        for f, grid, block, args, shared in calls:
            f(grid, block, args, shared)

    return run


def captured(torch, call):
    """A function that gives the seconds of a call, of so many in a CUDA graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(CALLS):
            call()

    def seconds():
        a, b = torch.cuda.Event(True), torch.cuda.Event(True)
        a.record()
        graph.replay()
        b.record()
        b.synchronize()
        return a.elapsed_time(b) / 1e3 / CALLS

    seconds.keeps = graph, call
    seconds()
    return seconds


def integers(torch, tensors, dtype, seed):
    torch.manual_seed(seed)
    return [torch.randint(-3, 4, [int(n) for n in t.shape], device="cuda").to(dtype) for t in tensors]


def row(torch, case, precision, task, log, arch):
    """Times of a case beside its peer."""
    dtype = getattr(torch, stored_as(precision))
    tensors = case.tensors(stored_as(precision))
    inp, res = auto_scheduler.load_best_record(log, task.workload_key, task.target, math=task.math)
    if inp is None:
        return None
    state = _core.State(_core.ComputeDAG(tensors), ns.states.core_state(inp.state).steps())
    arrays = integers(torch, tensors[:-1], dtype, 1)
    peer = case.peer(torch, *arrays)
    want = peer().contiguous()
    out = torch.full_like(want, 7)
    run = launcher(torch, state, tensors, arch, [*arrays, out])
    run()
    torch.cuda.synchronize()
    wrong = int((out != want).sum())
    if wrong and dtype in (torch.float16, torch.bfloat16):  # the peer may add up parts in 16 bits
        wrong = int((out.float() - want.float()).abs().max() > tolerance(stored_as(precision)) * want.float().abs().max())
    sides = {"nestsmith": captured(torch, run), "peer": captured(torch, peer)}
    times = {name: [] for name in sides}
    for _ in range(REPEATS):
        for name, seconds in sides.items():
            times[name].append(seconds())
    times = {name: statistics.median(v) for name, v in times.items()}
    return {"times": times, "flops": case.flops, "wrong": wrong, "schedule": tiles(state.text()), "measured": res.costs[0]}


def measure(group, precision, args, end):
    """Tunes what has no row and measures it."""
    import torch

    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cuda.matmul.allow_fp16_accumulation = precision == "fp16_accumulation"
    arch = "sm_{}{}".format(*torch.cuda.get_device_capability())
    rows = pathlib.Path(args.rows)
    todo = [c for c in cases(group, precision) if not (rows / f"{group} {precision} {c.name}.row".replace("/", "_")).exists()]
    tasks = [task_of(c, precision) for c in todo]
    if not tasks or time.time() > end:
        return
    log = str(rows / f"{group}-{precision}.json")
    begin = time.time()
    left = max(5.0, end - begin - 0.7 * len(todo))
    schedules.tune(tasks, [1] * len(tasks), tasks[0].target, args.trials * len(tasks), log, left, verbose=0)
    spent = (time.time() - begin) / len(tasks)
    for case, task in zip(todo, tasks):
        try:
            found = row(torch, case, precision, task, log, arch)
        except Exception as e:  # a case that fails is said and left out; the others go on
            print(f"{group} {precision} {case.name}: {type(e).__name__}: {str(e)[:200]}", flush=True)
            continue
        if found is None:
            print(f"{group} {precision} {case.name}: left out: the log has no valid record of it", flush=True)
            continue
        name = f"{group} {precision} {case.name}".replace("/", "_")
        found.update(group=group, precision=precision, case=case.name, gpu=torch.cuda.get_device_name(), torch=torch.__version__, tuning=spent,
                     trials=args.trials)  # fmt: skip
        (rows / f"{name}.row").write_text(json.dumps(found))
        t = found["times"]
        ours, other, wrong = t["nestsmith"] * 1e6, t["peer"] * 1e6, "  WRONG" if found["wrong"] else ""
        line = f"{group} {precision:8} {case.name:28} peer {other:8.2f} ours {ours:8.2f} us  x{other / ours:.2f}"
        print(f"{line}{wrong}  {found['schedule']}", flush=True)


def dry(args):
    """Without a GPU: what the first round of each case would measure on sm_90, and whether the first of it compiles."""
    for group in args.groups.split(","):
        for precision in args.types.split(","):
            for case in cases(group, precision):
                task = task_of(case, precision, "cuda -arch=sm_90")
                policy = auto_scheduler.SketchPolicy(task, "analytic", params={"evolutionary_search_population": 512}, seed=1, verbose=0)
                states = policy.propose(8)
                engine = task.target.engine()
                binary = _core.build(engine, _core.candidate_source(ns.states.core_state(states[0]), engine)[0], 0, "")[0]
                print(group, precision, case.name, len(binary), *(tiles(str(s)) for s in states), sep=" | ", flush=True)


def table(rows):
    """(text of the rows, text of the means)."""
    lines = ["| Group | Type | Case | nestsmith, us | peer, us | times as fast | TFLOP/s | bits | schedule |", "|---" * 9 + "|"]
    ratios = {}
    for r in rows:
        ours, peer = r["times"]["nestsmith"], r["times"]["peer"]
        ratios.setdefault((r["group"], r["precision"]), []).append(peer / ours)
        lines.append(
            f"| {r['group']} | {r['precision']} | {r['case']} | {ours * 1e6:.2f} | {peer * 1e6:.2f} | {peer / ours:.2f} | "
            f"{r['flops'] / ours / 1e12:.1f} | {'WRONG' if r['wrong'] else 'equal'} | {r['schedule']} |"
        )
    means = ["| Group | Type | cases | geometric mean | least |", "|---" * 5 + "|"]
    means += [f"| {g} | {p} | {len(v)} | {statistics.geometric_mean(v):.2f} | {min(v):.2f} |" for (g, p), v in ratios.items()]
    return "\n".join(lines), "\n".join(means)


def layouts(rows):
    """A convolution in each layout beside NHWC, where all were measured, and beside the peer in the layout in which that is faster."""
    times = {(r["precision"], r["case"], r["group"]): r["times"] for r in rows}
    nhwc, *nchw = LAYOUTS
    names = ["NHWC", *(f"NCHW, weights {GROUPS[g][0].weights}" for g in nchw), "the peer, NHWC", "the peer, NCHW"]
    ratio_names = "the faster NCHW by NHWC", "the faster peer by NHWC"
    lines = [f"| Type | Case | {', us | '.join(names)}, us | {' | '.join(ratio_names)} |", "|---" * (4 + len(names)) + "|"]
    ratios = {}
    for precision, case, _ in [k for k in times if k[2] == nhwc and all((*k[:2], g) in times for g in nchw)]:
        found = [times[precision, case, g] for g in LAYOUTS]
        ours, peers = ([t[side] for t in found] for side in ("nestsmith", "peer"))
        peers = peers[0], min(peers[1:])  # weights in either order were brought to PyTorch's
        both = min(ours[1:]) / ours[0], min(peers) / ours[0]
        ratios.setdefault(precision, []).append(both)
        cells = [f"{t * 1e6:.2f}" for t in (*ours, *peers)] + [f"{r:.2f}" for r in both]
        lines.append(f"| {precision} | {case} | {' | '.join(cells)} |")
    said = []
    for precision, both in ratios.items():
        mean = [statistics.geometric_mean(v) for v in zip(*both)]
        least, most = min(both)[0], max(both)[0]
        said.append(
            f"{precision}: NHWC is {mean[0]:.2f} times as fast as the faster NCHW ({least:.2f} to {most:.2f}), and {mean[1]:.2f} times as fast "
            f"as the peer in the layout in which that is faster ({min(b for _, b in both):.2f} and more).\n"
        )
    return "\n".join([*said, *lines, "", ""]) if ratios else ""


def write(args):
    rows = [json.loads(p.read_text()) for p in pathlib.Path(args.rows).glob("*.row")]
    if not rows:
        return
    order = {(g, c.name): i for i, (g, c) in enumerate((g, c) for g in GROUPS for c in GROUPS[g])}
    rows.sort(key=lambda r: (r["precision"], order[r["group"], r["case"]]))
    text, means = table(rows)
    gpu = " and ".join(sorted({r["gpu"] for r in rows}))
    out = args.out or ROOT / "docs" / "results" / f"tensor-cores-{re.sub('[^a-z0-9]+', '-', gpu.lower())}.md"
    versions, trials = sorted({r["torch"] for r in rows}), sorted({r["trials"] for r in rows})
    groups, types = (",".join(dict.fromkeys(r[k] for r in rows)) for k in ("group", "precision"))
    pathlib.Path(out).write_text(
        "# Products and convolutions beside cuBLAS and cuDNN\n\n"
        f"`python benchmarks/tensor_cores.py --groups {groups} --types {types} --trials {trials[-1]}` on {gpu}; PyTorch {' and '.join(versions)}. "
        f"Microseconds: median of {REPEATS} CUDA graphs of {CALLS} calls, sides in turn. Convolutions in NHWC unless their group says NCHW; the "
        "peer's, too; cudnn.benchmark on. bits: equal to the peer's on small integers. Tuning took "
        f"{statistics.mean(r['tuning'] for r in rows):.1f} s per case.\n\n{means}\n\n{layouts(rows)}{text}\n"
    )
    print(f"{means}\nthe table is in {out}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--groups", default=",".join(GROUPS), help="comma-separated: " + ", ".join(GROUPS))
    parser.add_argument("--types", default="float16,tf32", help=f"comma-separated: {', '.join(MODES)}")
    parser.add_argument("--trials", type=int, default=64, help="per case")
    parser.add_argument("--seconds", type=float, default=7200, help="it ends after them")
    parser.add_argument("--rows", default="tensor_cores", help="folder of rows and tuning logs")
    parser.add_argument("--dry", action="store_true", help="without a GPU: what would be measured first")
    parser.add_argument("--out", help="where the table goes (default: docs/results/tensor-cores-GPU.md)")
    args = parser.parse_args()
    for what, given, known in (("group", args.groups, GROUPS), ("type", args.types, MODES)):
        if wrong := [n for n in given.split(",") if n not in known]:
            parser.error(f"{what} {wrong[0]!r} is not known; known are {', '.join(known)}")
    if args.dry:
        return dry(args)
    os.makedirs(args.rows, exist_ok=True)
    begin = time.time()
    plan = [(g, p) for p in args.types.split(",") for g in args.groups.split(",")]
    for i, (g, p) in enumerate(plan):  # what is left of the time is shared by cases
        left = sum(len(cases(*both)) for both in plan[i:]) or 1
        now = time.time()
        measure(g, p, args, now + max(0.0, begin + args.seconds - now) * len(cases(g, p)) / left)
    write(args)


if __name__ == "__main__":
    sys.exit(main())
