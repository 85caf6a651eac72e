"""JoinInPlace: kernels write the parts of a concatenation where they will lie; results stay what they are, bit for bit."""

import json

import numpy as np
import pytest

import nestsmith as ns
from helpers import full, rest_full
from nestsmith import auto_scheduler, relay, te, topi
from nestsmith.contrib import graph_executor
from nestsmith.relay.infer import infer_type as typed
from nestsmith.states import core_state
from nestsmith.topi.default_schedule import default_state

nn = relay.nn
TARGETS = ["llvm", pytest.param("opencl", marks=pytest.mark.skipif(not ns.opencl(0).exist, reason="no OpenCL device"))]
SHAPE = (1, 6, 5, 8)


def conv(x, channels, seed, size=1, layout="NHWC", dtype="float32"):
    """A convolution of small integers and a relu."""
    c = x.checked_type.shape[layout.index("C")]
    form = (size, size, c, channels) if layout == "NHWC" else (channels, c, size, size)
    w = np.random.default_rng(seed).integers(-2, 3, form).astype(dtype)
    kernel = "HWIO" if layout == "NHWC" else "OIHW"
    y = nn.conv2d(
        x,
        relay.const(w),
        channels=channels,
        kernel_size=size,
        padding=size // 2,
        data_layout=layout,
        kernel_layout=kernel,
    )
    return typed(nn.relu(y))


def joined(parts, axis=3):
    return typed(relay.concatenate(parts, axis))


def image(shape=SHAPE, dtype="float32"):
    return typed(relay.var("x", shape=shape, dtype=dtype))


def built(out, on, target="llvm", **more):
    mod = ns.IRModule.from_expr(relay.Function(relay.expr.free_vars(out), out))
    with ns.transform.PassContext(opt_level=3, config={"relay.join_in_place": on, **more}):
        return relay.build(mod, target=target)


def run(lib, x, target):
    m = graph_executor.GraphModule(lib["default"](ns.device(str(target), 0)))
    m.set_input("x", x)
    for _ in range(2):  # what the first run left lies there in the second
        m.run()
    return [m.get_output(i).numpy() for i in range(m.get_num_outputs())]


def numbers(shape, dtype="float32"):
    return np.random.default_rng(0).integers(-3, 4, shape).astype(dtype)


def joins(lib):
    """The inputs of each node that joins in place."""
    return [
        len(n["inputs"])
        for n in json.loads(lib.graph_json_str)["nodes"]
        if n["op"] != "null" and n["attrs"]["func_name"] == "__join"
    ]


def expected(want, target):
    """OpenCL cannot offset memory: there nothing is joined in place."""
    return [] if target == "opencl" else want


def both(out, target="llvm", shape=SHAPE, dtype="float32", want=None):
    """The library with joins, whose results are those without, of `want` joins."""
    x = numbers(shape, dtype)
    off, on = (built(out, flag, target) for flag in (False, True))
    assert joins(off) == [] and joins(on) == expected(want, target)
    before, after = run(off, x, target), run(on, x, target)
    assert len(before) == len(after) and all(a.any() for a in before)
    for a, b in zip(before, after):
        assert np.array_equal(a, b)
    return on


FIRE = [(1, (16, 16), 3), (2, (32, 16, 48), 1), (1, (64, 64), 3), (3, (16,), 1)]


@pytest.mark.some(2)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("batch,channels,size", [*FIRE[1:], full(*FIRE[0])])
def test_fire_modules(target, batch, channels, size):
    shape = (batch, *SHAPE[1:])
    x = image(shape)
    squeezed = conv(x, 16, 1)
    out = joined([conv(squeezed, c, k + 2, 1 if k == 0 else size) for k, c in enumerate(channels)])
    both(conv(out, 10, 9), target, shape, want=[len(channels)])
    both(nn.max_pool2d(out, (2, 2), (1, 1), layout="NHWC"), target, shape, want=[len(channels)])


@pytest.mark.parametrize("target", TARGETS)
def test_a_concatenation_that_is_an_output_and_is_read(target):
    x = image()
    both(joined([conv(x, 16, 1), conv(x, 32, 2, 3)]), target, want=[2])
    y = joined([conv(x, 16, 1), conv(x, 32, 2, 3)])
    lib = both(relay.Tuple([conv(y, 7, 3), y, typed(relay.negative(y))]), target, want=[2])
    m = graph_executor.GraphModule(lib["default"](ns.device(target, 0)))
    m.set_input("x", numbers(SHAPE))
    m.run()
    want, own = m.get_output(1).numpy(), ns.nd.array(np.zeros((1, 6, 5, 48), "float32"), ns.device(target, 0))
    m.set_output_zero_copy(1, own)  # the parts move along
    m.set_input("x", numbers(SHAPE) * 2)
    m.run()
    assert np.array_equal(own.numpy(), want * 2) and want.any()
    m.set_output_zero_copy(1, None)
    m.set_input("x", numbers(SHAPE))
    m.run()
    assert np.array_equal(m.get_output(1).numpy(), want) and np.array_equal(own.numpy(), want * 2)


def test_a_reshaped_concatenation():
    x = image()
    y = joined([conv(x, 16, 1), conv(x, 32, 2, 3)])
    lib = both(relay.Tuple([conv(y, 7, 3), typed(relay.reshape(y, (1, -1)))]), want=[2])
    m = graph_executor.GraphModule(lib["default"](ns.cpu(0)))
    m.set_input("x", numbers(SHAPE))
    m.run()
    want, own = m.get_output(1).numpy(), ns.nd.array(np.zeros((1, 6 * 5 * 48), "float32"))
    m.set_output_zero_copy(1, own)
    m.run()
    assert np.array_equal(own.numpy(), want) and want.any()


def shared(x):
    part = conv(x, 16, 1)
    return relay.Tuple([joined([part, conv(x, 16, 2)]), conv(part, 5, 3)])


def part_is_output(x):
    part = conv(x, 16, 1)
    return relay.Tuple([joined([part, conv(x, 16, 2)]), part])


def in_two(x):
    part = conv(x, 16, 1)
    return relay.Tuple([joined([part, conv(x, 16, 2)]), joined([conv(x, 16, 3), part])])


@pytest.mark.parametrize(
    "make",
    [
        shared,
        part_is_output,
        in_two,
        lambda x: joined([conv(x, 16, 1)] * 2),
        lambda x: joined([x, conv(x, 16, 1)]),
        lambda x: joined([conv(x, 16, 1), relay.const(numbers((1, 6, 5, 16)))]),
        lambda x: joined([conv(x, 12, 1), conv(x, 20, 2)]),  # 48 bytes: would not be aligned
        lambda x: joined([conv(x, 16, 1), typed(relay.reshape(conv(x, 16, 2), (1, 6, 5, 16)))], 1),
        lambda x: joined([typed(relay.reshape(conv(x, 32, k), (1, 6, 10, 16))) for k in (1, 2)]),
    ],
)
def test_parts_that_others_need_or_that_cannot_be_moved(make):
    out = make(image())
    got = joins(built(out, True))
    assert got in ([], [2])
    both(out, want=got)


def test_what_is_left_alone():
    for make in (shared, part_is_output, in_two):
        assert joins(built(make(image()), True)) == []


def test_a_concatenation_of_concatenations():
    x = image()
    inner = joined([conv(x, 16, 1), conv(x, 16, 2)])
    both(joined([inner, conv(x, 32, 3)]), want=[])  # fused, they are one kernel
    lib = both(relay.Tuple([joined([inner, conv(x, 32, 3)]), conv(inner, 5, 4)]), want=[2])
    assert any("concatenate" in name for name in lib.kernels)  # the outer one copies


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("axis", rest_full(0, 1, 2, 3, short=(0, 2)))
def test_axes(target, axis):
    shape = (1, 4, 6, 16)
    x = image(shape)
    parts = [conv(x, 16, 1), conv(x, 16, 2, 3), typed(nn.max_pool2d(x, (3, 3), (1, 1), (1, 1), (1, 1), layout="NHWC"))]
    lib = both(joined(parts, axis), target, shape, want=[3])
    alone = built(relay.Tuple(parts), True, target)
    # What is one piece is made by the kernel that makes it anywhere.
    assert ({p.source for p in lib.kernels.values()} == {p.source for p in alone.kernels.values()}) == (
        axis <= 1
    ) or target == "opencl"


def test_channels_first():
    shape = (1, 8, 8, 8)
    x = image(shape)
    both(joined([conv(x, c, c, 3, "NCHW") for c in (3, 5)], 1), shape=shape, want=[2])


@pytest.mark.parametrize("dtype,channels", [("float16", 32), ("float64", 8), ("int8", 64)])
def test_element_types(dtype, channels):
    x = image((2, 3, 3, channels), dtype)
    parts = [typed(relay.add(relay.multiply(x, relay.const(k, dtype)), relay.const(1, dtype))) for k in (2, 3)]
    parts = [typed(nn.max_pool2d(p, (2, 2), layout="NHWC")) for p in parts]
    both(joined(parts), shape=(2, 3, 3, channels), dtype=dtype, want=[2])


def test_exported(tmp_path):
    x, data = image(), numbers(SHAPE)
    out = conv(joined([conv(x, 16, 1), conv(x, 32, 2, 3)]), 16, 3)
    lib = built(out, True)
    assert joins(lib) == [2]
    want = run(built(out, False), data, "llvm")
    path = tmp_path / "net.so"
    lib.export_library(path)
    m = graph_executor.GraphModule(ns.runtime.load_module(str(path))["default"](ns.cpu(0)))
    m.set_input("x", data)
    m.run()
    assert np.array_equal(m.get_output(0).numpy(), want[0])


def test_compile_joins_on_cpus_with_the_same_tasks():
    x, data = image(), numbers(SHAPE)
    out = conv(joined([conv(x, 16, 1), conv(x, 32, 2, 3)]), 16, 3)
    mod = ns.IRModule.from_expr(relay.Function([x], out))
    net = ns.compile(mod, {"x": data}, target="llvm", layout="keep", verbose=0)
    assert joins(net.lib) == [2] and "concatenate" not in str(net.report(2))
    assert np.array_equal(net(data), run(built(out, False), data, "llvm")[0])


def test_outputs_of_a_compiled_network_are_their_own():
    x, data = image(), numbers(SHAPE)
    out = joined([conv(x, 16, 1), conv(x, 32, 2, 3)])
    net = ns.compile(ns.IRModule.from_expr(relay.Function([x], out)), {"x": data}, target="llvm", layout="keep", verbose=0)
    assert joins(net.lib) == [2]
    want, first = run(built(out, False), data, "llvm")[0], net(data)
    second = net(data * 2)  # in other memory
    assert np.array_equal(first, want) and np.array_equal(second, want * 2) and np.array_equal(net(data), want)


def test_parts_are_not_reached_alone():
    x = image()
    lib = built(joined([conv(x, 16, 1), conv(x, 32, 2, 3)]), True)
    graph = json.loads(lib.graph_json_str)
    join = next(n for n in graph["nodes"] if n["op"] != "null" and n["attrs"]["func_name"] == "__join")
    core, there = lib["default"](ns.cpu(0)).core, ns.nd.array(np.zeros((1, 6, 5, 48), "float32"), ns.cpu(0))
    for node, k, _ in join["inputs"]:
        entry = graph["node_row_ptr"][node] + k
        for reach, given in ((core.bind, there.buffer), (core.get, there.numpy()), (core.set, there.numpy())):
            with pytest.raises(ValueError, match="part of a concatenation"):
                reach(entry, given)


def damaged(text, **changes):
    graph = json.loads(text)
    join = next(n for n in graph["nodes"] if n["op"] != "null" and n["attrs"]["func_name"] == "__join")
    at = graph["nodes"].index(join)
    for key, value in changes.items():
        if key == "axis":
            join["attrs"]["axis"] = value
        elif key == "inputs":
            join["inputs"] = value(join["inputs"])
        elif key == "shape":
            graph["attrs"]["shape"][1][graph["node_row_ptr"][at]] = value
        elif key == "head":
            graph["heads"].append(join["inputs"][0])
        elif key == "storage":
            graph["attrs"]["storage_id"][1][graph["node_row_ptr"][at]] = 0
    return json.dumps(graph)


@pytest.mark.parametrize(
    "changes",
    [
        {"axis": 2},
        {"axis": 4},
        {"axis": -1},
        {"axis": None},
        {"axis": "3"},
        {"inputs": lambda i: i[:1]},
        {"inputs": lambda i: [i[0], i[0]]},
        {"inputs": lambda i: [*i, [0, 0, 0]]},
        {"inputs": lambda i: []},
        {"inputs": lambda i: [i[0], [0, 0, 0]]},
        {"shape": [1, 6, 5, 47]},
        {"shape": [1, 6, 5, 64]},
        {"shape": [1, 6, 240]},
        {"head": True},
        {"storage": True},
    ],
)
def test_graph_files_that_join_wrongly_are_refused(changes):
    x = image()
    lib = built(conv(joined([conv(x, 16, 1), conv(x, 32, 2, 3)]), 16, 3), True)
    device = ns.cpu(0)
    with pytest.raises(ValueError, match="__join|joins|join inputs"):
        ns._core.GraphExec(device.handle(), damaged(lib.graph_json_str, **changes), lib.lib.load(device.handle()))


@pytest.mark.skipif(not ns.opencl(0).exist, reason="no OpenCL device")
def test_an_opencl_device_refuses_what_is_joined_in_place():
    x = image()
    on, off = (
        built(joined([conv(x, 16, 1), conv(x, 16, 2)], 0), flag, target)
        for flag, target in ((True, "llvm"), (False, "opencl"))
    )
    device = ns.opencl(0)
    with pytest.raises(ValueError, match="OpenCL"):
        ns._core.GraphExec(device.handle(), on.graph_json_str, off.lib.load(device.handle()))


def test_a_program_for_parts_does_not_run_where_they_lie_alone():
    x = image()
    lib = built(conv(joined([conv(x, 16, 1), conv(x, 32, 2, 3)]), 16, 3), True)
    other = built(conv(joined([conv(x, 16, 1), conv(x, 32, 2, 3)]), 16, 3), False)
    device = ns.cpu(0)
    with pytest.raises(ValueError):
        ns._core.GraphExec(device.handle(), lib.graph_json_str, other.lib.load(device.handle()))


# ---- programs ----
def layers(channels):
    x = te.placeholder((2, 7, 6, 8), name="x")
    w = te.placeholder((3, 3, 8, channels), name="w")
    y = topi.nn.relu(topi.nn.conv2d_nhwc(x, w, 1, 1, 1))
    yield [x, w, y]
    p = te.placeholder((2, 7, 6, channels), name="p")
    yield [p, topi.nn.pool2d(p, (2, 2), (1, 1), (1, 1), (0, 0, 0, 0), "max", layout="NHWC")]
    yield [p, topi.nn.relu(p)]


@pytest.mark.some(1)
@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("channels,extent", [(16, 48), full(24, 40), (7, 12)])
def test_any_schedule_writes_its_own_part_and_nothing_else(kind, channels, extent):
    """Also where rows are no whole vectors, and on GPUs, whose networks do not use it."""
    target, device = ns.target.Target(kind), ns.device(kind, 0).handle()
    for tensors in layers(channels):
        task = auto_scheduler.SearchTask(compute_dag=auto_scheduler.ComputeDAG(tensors), workload_key="k", target=target)
        states = auto_scheduler.SketchPolicy(task, auto_scheduler.AnalyticModel(), seed=1, verbose=0).sample_initial_population()[:6]
        assert states
        arrays = [numbers(tuple(int(d) for d in t.shape)) for t in tensors]
        given, shape = arrays[:-1], arrays[-1].shape
        for state in [core_state(s) for s in states[: 1 if kind == "opencl" else 2]]:
            out = []
            for wide in (shape[-1], extent):
                text, manifest = ns._core.candidate_source(state, task.engine_target(), 0, "f", 0, 3, wide * (wide == extent))
                whole = np.full((*shape[:-1], wide), -7, "float32")
                size = json.loads(manifest)["args"][-1]["bytes"]
                assert size == whole.nbytes - 4 * (wide - shape[-1])
                buffers = [device.alloc(a.nbytes) for a in (*given, whole)]
                for b, a in zip(buffers, (*given, whole)):
                    b.upload(a)
                device.load(text.encode() if kind == "opencl" else ns._core.build(target.engine(), text)[0], manifest).run(buffers)
                buffers[-1].download(whole)
                out.append(whole)
            assert np.array_equal(out[1][..., : shape[-1]], out[0]) and (out[1][..., shape[-1] :] == -7).all() and out[0].any()


@pytest.mark.parametrize("dim,extent", [(4, 48), (-1, 48), (3, 15), (3, -1), (3, 2**31)])
def test_parts_that_do_not_fit_are_refused(dim, extent):
    _, out = tensors = list(layers(16))[2]
    target = ns.target.Target("llvm")
    state = default_state(ns._core.ComputeDAG(tensors), target)
    with pytest.raises(ValueError, match=out.op.name):
        ns._core.candidate_source(state, target.engine(), 0, "f", 0, dim, extent)
