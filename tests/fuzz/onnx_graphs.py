"""Structured fuzzing of the ONNX importer: graphs of the standard's own tests, joined and bent.

``python tests/fuzz/onnx_graphs.py COUNT SEED [COMPARED]`` imports COUNT graphs in child processes with 2 GB of memory and 20 s each: each
becomes a network, or raises ValueError, OpNotImplemented or MemoryError. Of those that become networks it builds COMPARED (0) and compares
them with onnxruntime and the standard's reference evaluator: one of both has to agree. A finding prints the number of its graph;
``graph(seed, number)`` makes it again.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import random
import resource
import signal
import sys
import time
import warnings

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

if __name__ == "__main__":
    for folder in ("", "relay"):
        sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / folder))

import nestsmith
from nestsmith import relay
from nestsmith.error import OpNotImplemented

MEMORY, SECONDS = 2 << 30, 20
CLEAR = (ValueError, OpNotImplemented, MemoryError)
EDGES = (0, 1, -1, 2, 3, 7, -5, 63, 64, 1 << 16, (1 << 31) - 1, 1 << 31, -(1 << 31), 1 << 40, (1 << 63) - 1, -(1 << 63))
REALS = (0.0, -0.0, 1.0, -1.5, 1e-40, 3e38, float("inf"), float("-inf"), float("nan"))


def seeds():
    """Models of the standard's tests with the inputs that decide shapes as weights."""
    from onnx_node_tests import cases, known_inputs, plain

    out = []
    for _, text, sets, _, _ in cases():
        m = onnx.load_model_from_string(text)
        inputs = [plain(x) for x in sets[0][0]] if sets else []
        if len(text) < 20000 and all(x is not None for x in inputs):
            with contextlib.suppress(Exception):
                out.append((known_inputs(m, inputs), {i.name: x for i, x in zip(m.graph.input, inputs)}))
    return out


# ---- changes: each takes a random generator and a model, and changes it ----


def _some(rng, items):
    return rng.choice(items) if items else None


def _attribute(rng, m):
    """Another value, another type, one less."""
    a, node = None, _some(rng, m.graph.node)
    if node is not None and node.attribute:
        a = rng.choice(node.attribute)
    if a is None:
        return
    if rng.random() < 0.15:
        node.attribute.remove(a)
    elif a.HasField("i"):
        a.i = rng.choice(EDGES)
    elif a.ints:
        k = rng.randrange(len(a.ints))
        if rng.random() < 0.3:
            del a.ints[k]
        else:
            a.ints[k] = rng.choice(EDGES)
    elif a.HasField("f"):
        a.f = rng.choice(REALS)
    elif a.HasField("s"):
        a.s = rng.choice([b"", b"\xff", b"nearest", b"constant", b"\x1b[31m", a.s[:-1], a.s * 2])
    if rng.random() < 0.1:
        a.type = rng.randrange(1, 13)


def _weight(rng, m):
    t = _some(rng, m.graph.initializer)
    if t is None:
        return
    try:
        v = np.array(numpy_helper.to_array(t))
    except Exception:
        return
    how = rng.randrange(5)
    if how == 0:
        t.dims[:] = [rng.choice(EDGES) for _ in range(rng.randrange(4))]
    elif how == 1:
        t.data_type = rng.randrange(1, 24)
    elif v.size and v.dtype.kind in "iufb":
        k = rng.randrange(v.size)
        value = rng.choice(EDGES) if v.dtype.kind in "iub" else rng.choice(REALS)
        flat = v.reshape(-1)
        with np.errstate(all="ignore"), contextlib.suppress(OverflowError):
            flat[k] = value if how != 2 else np.asarray(int(flat[k]) + rng.choice((-1, 1))) if v.dtype.kind != "f" else flat[k] * 2
        t.CopyFrom(numpy_helper.from_array(v if how != 3 else v[..., : max(v.shape[-1] - 1, 0)] if v.ndim else v, t.name))


def _input(rng, m):
    i = _some(rng, m.graph.input)
    if i is None or not i.type.HasField("tensor_type"):
        return
    t = i.type.tensor_type
    if rng.random() < 0.3:
        t.elem_type = rng.choice([1, 2, 3, 5, 6, 7, 9, 10, 11, 12, 13, 16])
    elif t.shape.dim:
        d = rng.choice(t.shape.dim)
        d.dim_value = rng.choice([0, 1, 2, 3, 5, 1 << 20, 1 << 40, -1, max(d.dim_value - 1, 0)])
    if rng.random() < 0.1:
        t.shape.dim.add().dim_value = rng.choice([1, 2])


def _edge(rng, m):
    """An input of a node is another name, none, or gone."""
    node = _some(rng, m.graph.node)
    names = [i.name for i in m.graph.input] + [t.name for t in m.graph.initializer] + [o for n in m.graph.node for o in n.output] + ["", "q"]
    if node is not None and node.input:
        k = rng.randrange(len(node.input))
        if rng.random() < 0.2:
            del node.input[k]
        elif rng.random() < 0.2:
            node.input.append(rng.choice(names))
        else:
            node.input[k] = rng.choice(names)


def _order(rng, m):
    """Nodes change places, one is twice there, or gone."""
    nodes = m.graph.node
    if not nodes:
        return
    how, k = rng.randrange(3), rng.randrange(len(nodes))
    if how == 0:
        nodes.add().CopyFrom(nodes[k])
    elif how == 1:
        del nodes[k]
    else:
        rest = list(nodes)
        rng.shuffle(rest)
        del nodes[:]
        nodes.extend(rest)


_KIN = (
    ("Add", "Sub", "Mul", "Div", "Pow", "Mod", "Max", "Min", "PRelu"), ("Relu", "Neg", "Abs", "Exp", "Softmax", "Flatten", "Shape", "Size", "Not"),
    ("ReduceSum", "ReduceMax", "ReduceMean", "ReduceL2", "ReduceProd"), ("Gather", "GatherElements", "GatherND", "Compress"),
    ("MaxPool", "AveragePool", "LpPool", "GlobalMaxPool"), ("MatMul", "Gemm", "Einsum"), ("And", "Or", "Xor"), ("Tile", "Expand", "Reshape"),
)  # fmt: skip


def _operator(rng, m):
    node = _some(rng, m.graph.node)
    if node is not None:
        kin = next((k for k in _KIN if node.op_type in k), None)
        node.op_type = rng.choice(kin) if kin and rng.random() < 0.9 else rng.choice(["Nothing", "If", "Loop", "Identity", "Relu\x1b"])
        if rng.random() < 0.05:
            node.domain = "x.y"


def _branch(rng, m):
    """All nodes move into a branch of an If."""
    if not m.graph.node or not m.graph.output:
        return
    outs = [o.name for o in m.graph.output]
    inner = helper.make_graph(list(m.graph.node), "b", [], [helper.make_tensor_value_info(o, 1, None) for o in outs])
    other = helper.make_graph(list(m.graph.node), "b", [], [helper.make_tensor_value_info(o, 1, None) for o in outs[: rng.randrange(len(outs) + 1)]])
    m.graph.initializer.append(numpy_helper.from_array(np.array(rng.random() < 0.7), "cond_"))
    del m.graph.node[:]
    branches = {"then_branch": inner, "else_branch": inner if rng.random() < 0.5 else other}
    if rng.random() < 0.1:
        branches.popitem()
    m.graph.node.append(helper.make_node("If", ["cond_"], ["r_" + o for o in outs], **branches))
    for o in m.graph.output:
        o.name = "r_" + o.name


def _function(rng, m):
    """A node becomes a function, which may call itself or the next one twice."""
    node = _some(rng, m.graph.node)
    if node is None:
        return
    ins, outs = [f"i{k}" for k in range(len(node.input))], [f"o{k}" for k in range(len(node.output))]
    inner = type(node)()
    inner.CopyFrom(node)
    inner.input[:], inner.output[:] = [n if v else "" for n, v in zip(ins, node.input)], outs
    name = f"f{len(m.functions)}"
    if rng.random() < 0.1:
        inner.op_type, inner.domain = name, "fuzz"
    f = helper.make_function("fuzz", name, ins, outs, [inner], list(m.opset_import))
    m.functions.append(f)
    node.op_type, node.domain = name, "fuzz"
    del node.attribute[:]
    if not any(d.domain == "fuzz" for d in m.opset_import):
        m.opset_import.append(helper.make_opsetid("fuzz", 1))


def _tower(rng, m):
    """A chain of Tile or of Expand on a constant, as high as it comes."""
    if not m.graph.node:
        return
    op, last = rng.choice(["Tile", "Concat", "ConstantOfShape"]), "c_"
    m.graph.initializer.append(numpy_helper.from_array(np.array([2, 3], "int64"), "c_"))
    m.graph.initializer.append(numpy_helper.from_array(np.array([rng.choice([2, 3, 1 << 20])], "int64"), "k_"))
    for k in range(rng.choice([2, 30, 200])):
        made = f"tower{k}"
        n = {"Tile": (["k_"], {}), "Concat": ([last], {"axis": 0}), "ConstantOfShape": ([], {})}[op]
        m.graph.node.insert(k, helper.make_node(op, [last, *n[0]], [made], **n[1]))
        last = made
    m.graph.output.append(helper.make_tensor_value_info(last, TensorProto.INT64, None))


def _join(rng, m, others):
    """Another graph behind this one, its names told apart; an input of it may be an output of this one."""
    other, feeds = rng.choice(others)
    tag, new = f"j{len(m.graph.node)}_", onnx.ModelProto()
    new.CopyFrom(other)
    g = new.graph
    for node in g.node:
        node.input[:] = [tag + n if n else n for n in node.input]
        node.output[:] = [tag + n if n else n for n in node.output]
    for x in (*g.input, *g.output, *g.initializer):
        x.name = tag + x.name
    outs = [o.name for o in m.graph.output]
    for i in list(g.input):
        if outs and rng.random() < 0.6:
            chosen = rng.choice(outs)
            for node in g.node:
                node.input[:] = [chosen if n == i.name else n for n in node.input]
            g.input.remove(i)
    m.graph.node.extend(g.node)
    m.graph.input.extend(g.input)
    m.graph.initializer.extend(g.initializer)
    m.graph.output.extend(g.output)
    return {tag + k: v for k, v in feeds.items()}


CHANGES = (_attribute, _attribute, _weight, _weight, _input, _edge, _order, _operator, _branch, _function, _tower)


def graph(seed, number, found):
    """(model, values of its inputs) by its number; `found`: :func:`seeds`. A third of the graphs are whole, the others bent once or more."""
    rng = random.Random(f"{seed}:{number}")
    first, feeds = rng.choice(found)
    m = onnx.ModelProto()
    m.CopyFrom(first)
    feeds = dict(feeds)
    for _ in range(rng.choice((0, 0, 1, 1, 2, 4))):
        feeds |= _join(rng, m, found)
    for _ in range(rng.choice((0, 0, 1, 1, 2, 3))):
        rng.choice(CHANGES)(rng, m)
    return m, feeds


# ---- importing in children ----


def imported(m):
    """None, a network's (mod, params), or what is wrong."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return relay.frontend.from_onnx(m, limits={"bytes": 256 << 20, "seconds": SECONDS})
        except CLEAR as e:
            text = str(e)
            bad = isinstance(e, UnicodeError) or not text or not all(c.isprintable() or c in "\n\t" for c in text)
            return f"unclear: {e!r}"[:300] if bad else None
        except BaseException as e:
            return f"{type(e).__name__}: {e}"[:300]


def _child(seed, numbers, found, out):
    spare = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    with open("/proc/self/statm") as f:
        spare = int(f.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (spare + MEMORY,) * 2)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    for number in numbers:
        out.write(f"{number}\n")
        out.flush()
        m, _ = graph(seed, number, found)
        signal.alarm(SECONDS * 5)  # a process that hangs in C; time of the clock on a busy machine
        begin = time.process_time()
        found_it = imported(m)
        signal.alarm(0)
        used = time.process_time() - begin
        if isinstance(found_it, str) or used > SECONDS:
            out.write(f"! {number} {found_it if isinstance(found_it, str) else f'{used:.1f} s'}\n".replace("\n", " ") + "\n")
        elif found_it is not None:
            out.write(f"+ {number}\n")


def campaign(count, seed, batch=500, begin=0):
    """(numbers of graphs that became networks, findings)."""
    found, good, bad, at = seeds(), [], [], begin
    while at < begin + count:
        numbers = range(at, min(at + batch, begin + count))
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(read)
            try:
                with os.fdopen(write, "w") as out:
                    _child(seed, numbers, found, out)
            finally:
                os._exit(0)
        os.close(write)
        last = at
        with os.fdopen(read) as lines:
            for line in lines:
                if line[0] == "!":
                    bad.append(line[2:].strip())
                elif line[0] == "+":
                    good.append(int(line[2:]))
                else:
                    last = int(line)
        status = os.waitpid(pid, 0)[1]
        if status:
            bad.append(f"{last} the process ended with {status}")
        at = last + 1 if status else numbers.stop
    return good, bad


# ---- comparing ----


def wanted(m, feeds):
    """Results of onnxruntime and of the reference evaluator, where they have any."""
    import onnxruntime
    from onnx.reference import ReferenceEvaluator

    out = []
    with contextlib.suppress(Exception):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        copy = onnx.ModelProto()
        copy.CopyFrom(m)
        copy.ir_version = min(copy.ir_version, 10)
        out.append(onnxruntime.InferenceSession(copy.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, feeds))
    with contextlib.suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out.append(ReferenceEvaluator(m).run(None, feeds))
    return out


def same(got, want):
    if getattr(want, "dtype", None) == "bfloat16" and got.dtype == "uint16":  # its bits
        got, want = got.view(want.dtype).astype("float32"), want.astype("float32")
        return got.shape == want.shape and np.allclose(got, want, rtol=2e-2, atol=2e-2, equal_nan=True)
    if not isinstance(want, (np.ndarray, np.generic)) or got.shape != np.shape(want) or got.dtype != np.asarray(want).dtype:
        return False
    if got.dtype.kind not in "f":
        return np.array_equal(got, want)
    tolerance = {"float16": 4e-3, "float32": 1e-4, "float64": 1e-7}[got.dtype.name]
    return np.allclose(got.astype("float64"), want.astype("float64"), rtol=tolerance, atol=tolerance, equal_nan=True)


def _size(mod):
    t = mod["main"].ret_type
    parts = t.fields if hasattr(t, "fields") else [t]
    inputs = [p.type_annotation for p in mod["main"].params]
    return max((p.nbytes for p in [*parts, *inputs] if hasattr(p, "nbytes")), default=0)


def _disputed(m, feeds):
    """The standard casts indices of OneHot that are fractions; the evaluators find no class for them."""
    return any(n.op_type == "OneHot" and n.input[0] not in feeds for n in m.graph.node)


def compared(seed, numbers, found):
    """(how many networks have been compared, findings): each is built for the CPU and run on the values of its tests."""
    from nestsmith.contrib.graph_executor import GraphModule

    count, bad = 0, []
    for number in numbers:
        m, feeds = graph(seed, number, found)
        result = imported(m)
        if not isinstance(result, tuple):
            continue
        mod, params = result
        given = {p.name_hint: p.type_annotation for p in mod["main"].params}
        feeds = {k: v for k, v in feeds.items() if k in given and v.shape == tuple(given[k].shape) and str(v.dtype) == given[k].dtype}
        names = {i.name for i in m.graph.input} - {t.name for t in m.graph.initializer}
        want = wanted(m, feeds) if names == set(feeds) and not _disputed(m, feeds) else []
        try:
            if not want or _size(nestsmith.relay.transform.InferType()(mod)) > 1 << 22:
                continue
            with nestsmith.transform.PassContext(opt_level=2):
                lib = relay.build(mod, target="llvm", params=params)
            g = GraphModule(lib["default"](nestsmith.cpu()))
            for k, v in feeds.items():
                if k in given:
                    g.set_input(k, v)
            g.run()
            got = [g.get_output(k).numpy() for k in range(len(want[0]))]
        except OpNotImplemented:
            continue
        except Exception as e:
            if "divides an integer by zero" in str(e):  # the evaluators warn, and go on with some number
                continue
            bad.append(f"{number} {type(e).__name__}: {e}"[:300])
            continue
        count += 1
        for k, x in enumerate(got):
            if not any(same(x, w[k]) for w in want):
                bad.append(f"{number} output {k} ({m.graph.output[k].name}, {[n.op_type for n in m.graph.node]}): {x.ravel()[:4]}, not "
                           + " or ".join(str(np.asarray(w[k]).ravel()[:4]) for w in want))  # fmt: skip
    return count, bad


def main(count, seed, compare=0):
    begin = time.process_time() + os.times().children_user
    good, bad = campaign(count, seed)
    print(f"{count} graphs, {len(good)} networks, {len(bad)} findings, {time.process_time() + os.times().children_user - begin:.0f} s", flush=True)
    for line in bad:
        print("  ", line, flush=True)
    checked, wrong, at, found = 0, [], 0, seeds()
    while checked < compare and at < len(good):
        n, more = compared(seed, good[at : at + 20], found)
        checked, at = checked + n, at + 20
        wrong += more
        for line in more:
            print("  ", line, flush=True)
    print(f"{checked} networks compared, {len(wrong)} differ", flush=True)
    return not bad and not wrong


if __name__ == "__main__":
    ok = main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0)
    sys.exit(0 if ok else 1)
