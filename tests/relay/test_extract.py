"""Task extraction against what the reference extracts: keys in both namings, weights, operation counts, names,
texts."""

import gzip
import json
import pathlib
import time
import warnings

import pytest
from networks import FULL, SMALL

from helpers import slowness
from nestsmith import IRModule, auto_scheduler, relay, transform
from nestsmith.auto_scheduler import relay_integration
from nestsmith.target import Target

DATA = pathlib.Path(__file__).parents[1] / "data"
PEER = json.loads(gzip.open(DATA / "peer-networks.json.gz").read())
CUDA = "cuda -arch=sm_90 -max_shared_memory_per_block=49152 -max_threads_per_block=1024"
nn = relay.nn


def extract(mod, params, target=CUDA, **kw):
    return relay_integration.extract_tasks(mod, params, target, **kw)


@pytest.mark.parametrize("name", PEER)
def test_against_the_reference(name):
    net, kind = name.rsplit("-", 1)
    mod, params = FULL[net]()
    tasks, weights = extract(mod["main"], params, CUDA if kind == "cuda" else "llvm")
    got = {t.alt_keys[0]: (w, t.compute_dag.flop_ct, t.desc) for t, w in zip(tasks, weights)}
    want = {key: (w, flops, desc) for key, w, flops, desc in PEER[name]}
    assert set(got) == set(want)
    for key, (w, flops, desc) in want.items():
        assert got[key][0] == w and got[key][1] == pytest.approx(flops, rel=1e-6) and got[key][2] == desc


def test_resnet18_in_the_older_naming():
    reference = json.loads(gzip.open(DATA / "dags.json.gz").read())["tasks"]
    mod, params = FULL["resnet-18-NHWC"]()
    tasks, weights = extract(mod["main"], params)
    got = {t.workload_key: (w, t.compute_dag.text(), t.compute_dag.text(simple=True)) for t, w in zip(tasks, weights)}
    assert len(got) == 24 and sum(weights) == 25
    assert got == {t["key"]: (t["weight"], t["text"], t["simple_text"]) for t in reference}


def test_order_of_the_first_tutorials():
    mod, params = FULL["resnet-18-NHWC"]()
    tasks, weights = extract(mod, params, order="graph-2020")
    shapes = [json.loads(t.workload_key)[1:] for t in tasks]
    assert (
        shapes[0] == [[1, 1000], [1, 1000]]
        and shapes[1][0] == [1, 512]
        and shapes[2] == [[1, 7, 7, 512], [1, 1, 1, 512]]
    )
    assert weights.index(2) == 16 and [s[1] for s in shapes[20:]] == [
        [1, 1, 64, 64],
        [1, 1, 64, 128],
        [1, 1, 128, 256],
        [1, 1, 256, 512],
    ]


@pytest.mark.parametrize(
    "net,count,total", [("mobilenet-NCHW", 22, 30), ("resnet3d-NCDHW", 23, 24), ("resnet3d-NDHWC", 23, 24)]
)
def test_counts(net, count, total):
    mod, params = FULL[net]()
    tasks, weights = extract(mod, params)
    assert (len(tasks), sum(weights)) == (count, total)


def test_task_fields():
    mod, params = SMALL["mlp"]()
    tasks, _ = extract(mod, params, "llvm")
    t = next(t for t in tasks if "relu" in t.desc)
    assert (
        isinstance(t, auto_scheduler.search_task.SearchTask)
        and t.target == Target("llvm")
        and t.layout_rewrite_option == 2
    )
    again = auto_scheduler.search_task.SearchTask(workload_key=t.workload_key, target="llvm")
    assert str(again.compute_dag) == str(t.compute_dag)


def test_simple_tasks_and_dump(tmp_path):
    mod, params = FULL["resnet-18-NHWC"]()
    dump = tmp_path / "dags.json"
    tasks, weights = extract(mod, params, include_simple_tasks=True, dump_workload_to_dag_log=str(dump))
    assert len(tasks) == 30 and sum(weights) == 31
    assert json.loads(dump.read_text()) == {t.workload_key: str(t.compute_dag) for t in tasks}


def two_convs(x):
    y = x
    for i in range(2):
        y = nn.relu(nn.conv2d(y, relay.var(f"w{i}", shape=(8, 8, 3, 3)), padding=1))
    return y


def test_variables_and_primitive_functions():
    x = relay.var("x", shape=(1, 8, 14, 14))
    body = two_convs(x)
    f = relay.Function(relay.expr.free_vars(body), body)
    tasks, weights = extract(IRModule.from_expr(f), None, "llvm")
    assert sum(weights) == 2
    prim = relay.Function(f.params, f.body, attrs={"Primitive": 1})
    args = [relay.var(p.name_hint, p.checked_type) for p in f.params]
    tasks, weights = extract(relay.Function(args, relay.expr.Call(prim, args)), None, "llvm")
    assert weights == [1] and tasks[0].desc == "vm_mod_fused_nn_conv2d_nn_relu_nn_conv2d_nn_relu"


def test_branches():
    x, w, c = (
        relay.var("x", shape=(1, 8, 9, 9)),
        relay.var("w", shape=(8, 8, 3, 3)),
        relay.var("c", shape=(), dtype="bool"),
    )
    y = nn.conv2d(nn.conv2d(x, w, padding=1), w, padding=1)
    f = relay.Function([x, w, c], relay.erf(relay.If(c, relay.zeros((1, 8, 9, 9), "float32"), y)))
    _, weights = extract(f, None, "llvm")
    assert weights == [2]


def test_dynamic_shapes_give_no_task():
    x = relay.var("x", relay.TensorType((relay.Any(), 32)))
    with pytest.warns(UserWarning, match="no tasks for vm_mod_fused_max: they have dimensions known only at run time"):
        assert extract(relay.Function([x], relay.max(x)), None, "llvm") == ([], [])
    with pytest.warns(UserWarning, match="run time"):
        assert extract(relay.Function([x], relay.max(x)), None, "llvm", include_simple_tasks=True) == ([], [])


@pytest.fixture
def opaque(monkeypatch):
    """Two operators that have a type and no loops, as a user may register them."""
    from nestsmith.relay.op import registry

    monkeypatch.setattr(registry, "_TABLE", dict(registry._TABLE))
    for name, pattern in (("test.sort", registry.OPAQUE), ("test.crop", registry.INJECTIVE)):
        registry.register(name, pattern, lambda attrs, types: types[0])
    return [lambda x, n=n: registry.call(n, [x]) for n in ("test.sort", "test.crop")]


def test_operators_without_loops_are_refused_all_at_once(opaque):
    sort, crop = opaque
    x = relay.var("x", shape=(1, 8, 14, 14))
    f = lambda y: relay.exp(crop(crop(sort(sort(y)))))  # noqa: E731
    mod = IRModule.from_expr(relay.Function([x], relay.sum(f(relay.Tuple([f(x), x]).fields[0]))))
    what = r"test\.sort, 4 calls: .*\n.*test\.crop, 4 calls: operator test.crop has no definition as loops"
    with pytest.raises(ValueError, match=what + r"\nunsupported='skip'"):
        extract(mod, {}, "llvm")
    with pytest.warns(UserWarning, match=what):
        tasks, _ = extract(mod, {}, "llvm", unsupported="skip")
    assert len(tasks) == 1
    with pytest.raises(ValueError, match=what):
        relay.build(mod, "llvm")
    with pytest.raises(ValueError, match="unsupported 'no' is unknown; known are raise, skip"):
        extract(mod, {}, "llvm", unsupported="no")


def test_weights_without_params_are_told():
    mod, params = SMALL["mlp"]()
    with pytest.warns(UserWarning, match="weights 'fc1_weight', 'fc1_bias', 'fc2_weight', 'fc2_bias' and 2 more"):
        extract(mod, None, "llvm")
    x, y = relay.var("x", shape=(2, 3, 4)), relay.var("y", shape=(2, 5, 4))
    product = relay.Function([x, y], nn.batch_matmul(nn.relu(x), y))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        extract(mod, params, "llvm")
        extract(mod, {}, "llvm")
        extract(product, None, "llvm")


def test_winograd_never():
    mod, params = SMALL["resnet18-NHWC"]()
    with transform.PassContext(opt_level=3, config={"relay.winograd": "never"}):
        tasks, _ = extract(mod, params)
    assert not any("winograd" in t.desc for t in tasks)


def test_opencl_keeps_the_weight_transform_in_the_task():
    mod, params = SMALL["resnet18-NHWC"]()
    tasks, _ = extract(mod, params, "opencl -max_shared_memory_per_block=32768 -thread_warp_size=16")
    assert any("kernel_pack" in t.compute_dag.text() for t in tasks)


def test_errors():
    mod, params = SMALL["mlp"]()
    with pytest.raises(ValueError, match="order"):
        extract(mod, params, order="random")
    with pytest.raises(ValueError, match="target"):
        extract(mod, params, None)
    with pytest.raises(ValueError, match="fc1_weight"):
        extract(mod, {"fc1_weight": params["fc2_weight"]})


def test_extraction_is_fast():
    mod, params = FULL["resnet-50-NHWC"]()
    begin = time.process_time()  # however busy the machine is
    extract(mod, params, "llvm")
    assert time.process_time() - begin < 8 * slowness()  # 0.3 s on an idle core


def test_layout_option_gives_the_tasks_of_the_other_layout():
    nchw, nhwc = FULL["resnet-18-NCHW"](), FULL["resnet-18-NHWC"]()
    tasks, weights = extract(*nchw, layout="NHWC")
    other, other_weights = extract(*nhwc)
    assert {t.workload_key: w for t, w in zip(tasks, weights)} == {
        t.workload_key: w for t, w in zip(other, other_weights)
    }
