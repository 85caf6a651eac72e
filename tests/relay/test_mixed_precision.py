"""16-bit floats: what ToMixedPrecision makes of a network, how far it is from float32, and networks built in 16 bits."""

import numpy as np
import pytest
from networks import SMALL, logits, numpy_params
from relay_reference import evaluate, relative_error

import nestsmith as ns
from helpers import full, in_turn
from nestsmith import IRModule, numerics, relay, transform
from nestsmith.contrib import graph_executor
from nestsmith.relay import testing as T
from nestsmith.relay.expr import Call, Constant, post_order
from nestsmith.relay.transform.basic import bind_params_by_name

nn = relay.nn
KEEP = {"relay.ToMixedPrecision.keep_orig_output_dtype": True}
TYPES = ("float16", "bfloat16")


def func(body):
    return relay.transform.InferType()(relay.Function(relay.expr.free_vars(body), body))


def X(*shape, name="x"):
    return relay.var(name, shape=shape)


def conv(x, name="w", channels=8, k=3):
    return nn.conv2d(x, relay.var(name), channels=channels, kernel_size=(k, k), padding=k // 2)


def mixed(f, dtype="float16", mode=1, config=None):
    with transform.PassContext(opt_level=3, config=config):
        return relay.transform.ToMixedPrecision(dtype, mode)(f)


def types(f):
    """{operator: element types of its results} of a function, casts left out."""
    relay.transform.InferType()(f)
    calls = [e for e in post_order(f.body) if isinstance(e, Call) and e.op_name != "cast"]
    return {e.op_name: {t.dtype for t in getattr(e.checked_type, "fields", (e.checked_type,))} for e in calls}


def run(mod, params, inputs, target="llvm"):
    with transform.PassContext(opt_level=3):
        lib = relay.build(mod, target, params=params)
    m = graph_executor.GraphModule(lib["default"](ns.device(target, 0)))
    m.run(**inputs)
    return m.get_output(0).numpy()


class Trained(T.Initializer):
    """Weights under which values keep their size, of depthwise convolutions too, and statistics that are not 0 and 1."""

    def __init__(self, kernel_layout):
        self.kernel_layout = kernel_layout

    def __call__(self, desc, arr):
        super().__call__(desc, arr)
        if not desc.endswith("weight"):
            arr += np.random.uniform(-0.2, 0.2, arr.shape)

    def _init_weight(self, name, arr):
        layout = "OI" if arr.ndim == 2 else self.kernel_layout
        outputs = max(arr.shape[-2:]) if arr.shape[-1] == 1 else arr.shape[layout.index("O")]
        arr[...] = np.random.normal(0, np.sqrt(2 * outputs / arr.size), arr.shape)


def of_both_types(names, short):
    """Those in `short` in turn of each type, all others in the exhaustive runs."""
    return in_turn(short, TYPES) + [full(n, t) for n in names if n not in short for t in TYPES]


def network(name):
    """A small network without softmax, its parameters and data."""
    make = logits(SMALL[name]()[0])["main"]
    mod, params = T.create_workload(make, Trained("OIDHW" if "3d" in name else "HWIO" if "NHWC" in name else "OIHW"))
    x = np.random.default_rng(0).uniform(-1, 1, make.params[0].checked_type.shape).astype("float32")
    return mod, numpy_params(params), x


@pytest.mark.some(1)
@pytest.mark.parametrize("name,dtype", of_both_types(SMALL, ("mobilenet-NHWC", "dcgan", "dqn")))
def test_networks_stay_near_float32(name, dtype):
    mod, params, x = network(name)
    want = evaluate(mod["main"], {"data": x, **params})
    low = mixed(bind_params_by_name(mod["main"], params), dtype, config=KEEP)
    got = run(IRModule.from_expr(low), None, {"data": x})
    assert got.dtype == np.float32 and np.isfinite(got).all()
    assert relative_error(got, want) < 2e-2
    for name, found in types(low).items():
        assert not name.startswith(("nn.conv", "nn.dense")) or found == {dtype}
        assert name not in ("nn.global_avg_pool2d", "nn.adaptive_avg_pool3d") or found == {"float32"}


def test_parameters_bound_at_the_build_give_the_same():
    mod, params, x = network("dcgan")
    late, early = mixed(mod["main"]), mixed(bind_params_by_name(mod["main"], params))
    a, b = (run(IRModule.from_expr(f), p, {"data": x}) for f, p in ((late, params), (early, None)))
    assert a.dtype == np.float16
    np.testing.assert_array_equal(a, b)


def test_early_casts_are_part_of_what_computes_the_value():
    """Between a softmax, which stays in float32, and a product lies a reshape: a cast behind it is a kernel of its own, one before it
    is not. The value that another reader wants in float32 keeps it."""
    weights = nn.softmax(nn.dense(X(6, 8), relay.var("w", shape=(10, 8))))
    product = nn.batch_matmul(relay.reshape(weights, (2, 3, 10)), relay.var("v", shape=(2, 4, 10)))
    f = func(relay.Tuple([product, relay.exp(relay.reshape(weights, (60,)))]))
    values = {p.name_hint: np.random.default_rng(0).standard_normal(p.checked_type.concrete_shape).astype("float32") for p in f.params}
    late, early = (mixed(f, config={"relay.ToMixedPrecision.early_casts": v, **KEEP}) for v in (False, True))
    for g, name in ((late, "reshape"), (early, "nn.softmax")):
        casts = [e.args[0] for e in post_order(g.body) if isinstance(e, Call) and e.op_name == "cast" and e.attrs.dtype == "float16"]
        assert [e.op_name for e in casts if isinstance(e, Call)] == [name]
    def kernels(early):
        fused = relay.transform.FuseOps(3)(mixed(func(product), config={"relay.ToMixedPrecision.early_casts": early}))
        found = [e.op.body for e in post_order(fused.body) if isinstance(e, Call) and isinstance(e.op, relay.Function)]
        return [{e.op_name for e in post_order(body) if isinstance(e, Call)} for body in found]

    assert {"nn.softmax", "cast"} in kernels(True) and {"nn.softmax"} in kernels(False) and {"reshape", "cast"} in kernels(False)
    for a, b in zip(evaluate(late, values), evaluate(early, values)):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", TYPES)
def test_no_cast_of_a_weight_is_left(dtype):
    """Bound weights are constants of 16 bits: bfloat16 too, which NumPy does not have."""
    mod, params, _ = network("dqn")
    low = mixed(bind_params_by_name(mod["main"], params), dtype)
    with transform.PassContext(opt_level=3):
        folded = relay.transform.FoldConstant()(low)
    casts = [e.args[0] for e in post_order(folded.body) if isinstance(e, Call) and e.op_name == "cast"]
    assert len(casts) == 1 and isinstance(casts[0], relay.Var)
    weights = {str(e.checked_type.dtype) for e in post_order(folded.body) if isinstance(e, Constant)}
    assert weights == {dtype}


def test_colours():
    x = X(1, 8, 6, 6)
    y = nn.relu(conv(x))
    cases = [
        (nn.softmax(y), {"nn.relu": {"float16"}, "nn.softmax": {"float32"}}),
        (relay.add(y, relay.const(1.0)), {"add": {"float16"}}),
        (relay.add(y, relay.const(-1e9)), {"add": {"float32"}}),  # a mask, infinite in float16
        (relay.add(y, relay.const(1e-12)), {"add": {"float32"}}),  # an epsilon, zero in float16
        (relay.multiply(y, relay.exp(y)), {"exp": {"float32"}, "multiply": {"float32"}}),
        (relay.multiply(y, X(8, 1, 1, name="g")), {"multiply": {"float16"}}),
        (relay.concatenate([y, relay.exp(x)], 1), {"concatenate": {"float32"}}),
        (relay.concatenate([y, nn.max_pool2d(y, (3, 3), padding=(1, 1))], 1), {"concatenate": {"float16"}}),
        (relay.where(relay.greater(y, relay.const(0.5)), y, relay.const(0.0)), {"where": {"float16"}, "greater": {"bool"}}),
        (relay.argmax(y, 1), {"argmax": {"int32"}}),
        (relay.topk(y, 2, 1).astuple(), {"topk": {"float16", "int32"}}),
        (relay.mean(y, (2, 3)), {"mean": {"float32"}}),
        (nn.layer_norm(y, X(6, name="a"), X(6, name="b")), {"nn.layer_norm": {"float32"}}),
        (relay.split(y, 2, 1)[1], {"split": {"float16"}}),
        (relay.exp(x), {"exp": {"float32"}}),
    ]
    for body, want in cases:
        got = types(mixed(func(body)))
        assert {k: got[k] for k in want} == want


def test_every_operator_has_a_colour_and_casts_are_shared():
    assert [n for n in relay.op.names() if relay.op.get(n).colour not in ("always", "follow", "never")] == []
    x = X(1, 8, 6, 6)
    low = mixed(func(relay.add(conv(x), conv(x, "v"))))
    assert sum(isinstance(e, Call) and e.op_name == "cast" for e in post_order(low.body)) == 3  # of x and two weights
    wide = mixed(func(relay.cast(conv(x), "float64")))
    assert wide.body.checked_type.dtype == "float64"
    ints = func(nn.conv2d(relay.var("x", shape=(1, 4, 5, 5), dtype="int8"), relay.var("w", shape=(4, 4, 3, 3), dtype="int8"), out_dtype="int32"))
    assert types(mixed(ints)) == {"nn.conv2d": {"int32"}}


def test_errors():
    with pytest.raises(ValueError, match="mixed_precision_type is 'int8'"):
        relay.transform.ToMixedPrecision("int8")
    with pytest.raises(ValueError, match="missing_op_mode is 3"):
        relay.transform.ToMixedPrecision("float16", 3)


def test_operators_without_a_colour(monkeypatch, caplog):
    monkeypatch.setattr(relay.op.get("nn.relu"), "colour", None)
    f = func(nn.relu(conv(X(1, 8, 6, 6))))
    with caplog.at_level("WARNING", logger="nestsmith"):
        assert types(mixed(f))["nn.relu"] == {"float32"}
    assert "nn.relu" in caplog.text
    with pytest.raises(ValueError, match=r"nn\.relu"):
        mixed(f, mode=0)


def test_bfloat16_rounds_to_the_nearest():
    import torch

    x = np.random.default_rng(0).normal(size=4096) * 10.0 ** np.arange(-30, 34).repeat(64)
    x = np.concatenate([x, [0.0, -0.0, np.inf, -np.inf, np.nan, 1.00390625]]).astype("float32")
    want = torch.from_numpy(x).to(torch.bfloat16)
    bits = numerics.to_bfloat16(x)
    np.testing.assert_array_equal(numerics.from_bfloat16(bits), want.float().numpy())
    assert bits.dtype == np.uint16 and np.isnan(numerics.from_bfloat16(bits)[-2])


OF_TYPE = {
    "resnet": lambda d: T.resnet.get_workload(num_layers=18, image_shape=(3, 32, 32), num_classes=10, dtype=d),
    "resnet3d": lambda d: T.resnet_3d.get_workload(image_shape=(3, 4, 40, 40), num_classes=10, dtype=d),
    "mobilenet": lambda d: T.mobilenet.get_workload(image_shape=(3, 32, 32), num_classes=10, dtype=d),
    "mobilenet-NHWC": lambda d: T.mobilenet.get_workload(image_shape=(32, 32, 3), num_classes=10, layout="NHWC", dtype=d),
    "squeezenet": lambda d: T.squeezenet.get_workload(image_shape=(3, 64, 64), num_classes=10, dtype=d),
    "vgg": lambda d: T.vgg.get_workload(1, image_shape=(3, 32, 32), num_classes=10, dtype=d),
    "inception_v3": lambda d: T.inception_v3.get_workload(1, num_classes=10, dtype=d),
    "densenet": lambda d: T.densenet.get_workload(121, 10, 1, dtype=d),
    "dcgan": lambda d: T.dcgan.get_workload(1, ngf=8, dtype=d),
    "dqn": lambda d: T.dqn.get_workload(1, dtype=d),
    "mlp": lambda d: T.mlp.get_workload(1, dtype=d),
    "lstm": lambda d: T.lstm.get_workload(1, 8, dtype=d),
}


@pytest.mark.some(1)
@pytest.mark.parametrize("name,dtype", of_both_types(OF_TYPE, ("dcgan", "mobilenet", "lstm")))
def test_networks_of_16_bits_build_and_run(name, dtype):
    mod, params = OF_TYPE[name](dtype)
    assert {p.checked_type.dtype for p in mod["main"].params} == {dtype}
    wide, same = OF_TYPE[name]("float32")
    rng = np.random.default_rng(0)
    inputs = {p.name_hint: rng.uniform(-1, 1, p.checked_type.shape).astype("float32") for p in wide["main"].params if p.name_hint not in same}
    given = {k: numerics.to_bfloat16(v) if dtype == "bfloat16" else v.astype(dtype) for k, v in inputs.items()}
    got = run(mod, params, given)
    got = numerics.from_bfloat16(got) if dtype == "bfloat16" else got
    assert np.isfinite(got).all() and relative_error(got, run(wide, same, inputs)) < 2e-2
