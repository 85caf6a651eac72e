"""Networks and templates: which tasks a network has, and what a build makes of records."""

import json
import logging
import re

import numpy as np
import pytest
from template_network import X, build, output, records, small_network

from helpers import in_turn
from nestsmith import autotvm, relay, transform
from nestsmith.relay import testing
from nestsmith.relay.op.nn.winograd import winograd_matrices

MALI, LLVM, CUDA = "opencl -device=mali", "llvm", "cuda -arch=sm_90"
CONV, DENSE = relay.op.get("nn.conv2d"), relay.op.get("nn.dense")


@pytest.fixture(scope="module")
def resnet():
    return testing.resnet.get_workload(num_layers=18, batch_size=1)


def plain(args):
    return json.loads(json.dumps(args))


# ---- extraction ----
@pytest.mark.parametrize("key, ops", [("mali", [CONV]), ("llvm", None)])
def test_the_tasks_of_resnet_18(resnet, key, ops, peer_tasks):
    """Names, arguments, operations, spaces, configurations and features are those of TVM v0.14, in its order."""
    mod, params = resnet
    peer = peer_tasks(f"resnet-18-NCHW-{key}")
    tasks = autotvm.task.extract_from_program(mod["main"], params=params, target=peer["target"], ops=ops)
    assert [(t.name, plain(t.args), t.flop) for t in tasks] == [(p["name"], p["args"], p["flop"]) for p in peer["tasks"]]
    for task, p in zip(tasks, peer["tasks"]):
        space = task.config_space
        assert (len(space), space.range_length) == (p["length"], p["range_length"])
        assert {n: len(s) for n, s in space.space_map.items()} == p["space"]
        for c in p["configs"]:
            cfg = space.get(c["index"])
            assert plain(cfg.to_json_dict()) == c["json"]
            assert cfg.get_flatten_feature().tolist() == c["flat"]


@pytest.mark.parametrize("target", [CUDA, "opencl"])
def test_all_gpus_have_their_tasks_in_one_order(resnet, target, peer_tasks):
    """Convolution by convolution that of the reference's list for Mali, the direct template before Winograd's."""
    tasks = autotvm.task.extract_from_program(resnet[0]["main"], params=resnet[1], target=target, ops=[CONV])
    assert [(t.name.replace("conv2d_nchw.cuda", "conv2d_nchw_spatial_pack.mali").replace(".cuda", ".mali"), plain(t.args)) for t in tasks] == [
        (p["name"], p["args"]) for p in peer_tasks("resnet-18-NCHW-mali")["tasks"]
    ]


@pytest.mark.parametrize("target, ops, count", [
    (MALI, [CONV, DENSE], 17), (MALI, None, 17), (CUDA, [CONV], 16), (LLVM, [CONV], 12), (LLVM, [DENSE], 2), (LLVM, CONV, 12),
])
def test_how_many_tasks(resnet, target, ops, count):
    mod, params = resnet
    tasks = autotvm.task.extract_from_program(mod, params, target, ops=ops)
    assert len(tasks) == count
    assert all(t.target == tasks[0].target and len(t.config_space) > 0 for t in tasks)


def test_several_networks(resnet):
    """Each task once; MobileNet has 21 of its own."""
    mobile = testing.mobilenet.get_workload(batch_size=1)
    assert len(autotvm.task.extract_from_program(*mobile, LLVM)) == 21
    both = autotvm.task.extract_from_multiple_program([resnet[0], mobile[0]], [resnet[1], mobile[1]], LLVM)
    keys = [t.workload for t in both]
    assert len(set(keys)) == len(keys) < 14 + 21 + 1
    with pytest.raises(ValueError, match="2 networks and weights for 1"):
        autotvm.task.extract_from_multiple_program([mobile[0], resnet[0]], [mobile[1]], LLVM)
    with pytest.raises(ValueError, match="target is None"):
        autotvm.task.extract_from_program(*mobile, None)
    with pytest.raises(ValueError, match="there is no operator 'nn.conv'"):
        autotvm.task.extract_from_program(*mobile, LLVM, ops=["nn.conv"])


# ---- building with records ----
ARM = "llvm -keys=arm_cpu,cpu -device=arm_cpu"


@pytest.mark.some(2)
@pytest.mark.parametrize("target,part", in_turn([MALI, LLVM, ARM, "opencl"], [3, None]))
def test_the_tuned_network_computes_the_same(target, part):
    """Every operator by a template, with what follows it; weights are packed ahead of time."""
    mod, params = small_network()
    tasks = autotvm.task.extract_from_program(mod, params, target)
    direct = [t for t in tasks if "winograd" not in t.name]  # exact in float32
    lib = build(mod, params, target, records(direct, pick=lambda n: n // part if part else 0))
    plainly = build(mod, params, target)
    got, want = output(lib, target, X), output(plainly, target, X)
    assert np.abs(want).max() > 10
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("target", [MALI, LLVM])
def test_the_log_of_a_graph_tuner(target, tmp_path):
    """Operators of one workload get its first record, in whatever order they are asked for; others have none."""
    mod, params = small_network()
    tasks = [t for t in autotvm.task.extract_from_program(mod, params, target, ops=[CONV]) if "winograd" not in t.name]
    log = records(tasks, pick=lambda n: n // 3)
    later = records(tasks[:1], cost=lambda task: 0.5, pick=lambda n: n // 5)
    assert later[0][0].config.index != log[0][0].config.index
    path = tmp_path / "graph.log"
    path.write_text("".join(autotvm.record.encode(*pair) + "\n" for pair in log + later))
    with autotvm.apply_graph_best(str(path)), transform.PassContext(opt_level=3):
        lib = relay.build(mod, target=target, params=params)
    assert stages(lib) == stages(build(mod, params, target, log))


@pytest.mark.some(1)
@pytest.mark.parametrize("target, name", [(MALI, "conv2d_nchw_winograd.mali"), ("opencl", "conv2d_nchw_winograd.cuda"),
                                          (ARM, "conv2d_nchw_winograd.arm_cpu")])
def test_the_fastest_template_is_taken(target, name):
    """The record with the smallest cost decides, whatever the priorities say."""
    mod, params = small_network()
    tasks = autotvm.task.extract_from_program(mod, params, target, ops=[CONV])
    fast = records(tasks, lambda t: 0.5 if t.name == name else 1.0)
    slow = records(tasks, lambda t: 2.0 if t.name == name else 1.0)
    lib, other = build(mod, params, target, fast), build(mod, params, target, slow)
    want = output(build(mod, params, target), target, X)
    for built, winograd in ((lib, True), (other, False)):
        assert ("inverse" in stages(built)) == winograd
        np.testing.assert_array_equal(np.rint(output(built, target, X)), want)


def test_a_record_with_many_virtual_threads_is_used(caplog):
    """Measuring allows as many as a template says, so building does too."""
    mod, params = small_network()
    tasks = autotvm.task.extract_from_program(mod, params, "opencl", ops=[CONV])
    task = next(k for k in tasks if k.name == "conv2d_nchw.cuda" and k.args[1][1] == (16, 8, 3, 3))
    wanted = {"tile_f": [-1, 16, 1, 1]}  # virtual threads: the second one
    digits = [next(i for i, e in enumerate(space) if getattr(e, "size", None) == wanted.get(n, getattr(e, "size", None)))
              for n, space in task.config_space.space_map.items()]  # fmt: skip
    log = records([task], pick=lambda n: task.config_space.knob2point(digits))
    assert all(log[0][0].config[n].size == size for n, size in wanted.items())
    with caplog.at_level(logging.WARNING):
        lib = build(mod, params, "opencl", log)
    assert "its template failed" not in caplog.text
    np.testing.assert_array_equal(output(lib, "opencl", X), output(build(mod, params, "opencl"), "opencl", X))


def stages(lib):
    """The text of all kernels."""
    return "\n".join(p.source for p in lib.kernels.values())


@pytest.mark.parametrize("target, packed, word", [
    (MALI, lambda v: v.ndim == 5, "kernel_vec"), (LLVM, lambda v: v.ndim == 6, "kernel_vec"),
])
def test_weights_are_packed_ahead_of_time(target, packed, word):
    """The network holds packed weights and no kernel packs; without params the weight stays an input, and is packed there."""
    mod, params = small_network()
    tasks = autotvm.task.extract_from_program(mod, params, target, ops=[CONV])
    log = records([t for t in tasks if "winograd" not in t.name], pick=lambda n: n // 3)
    lib = build(mod, params, target, log)
    assert sum(packed(v) for v in lib.get_params().values()) >= 3
    assert word + "[" not in stages(lib) and word + "_packed" in stages(lib)
    inputs = build(mod, None, target, log)
    assert not inputs.get_params()
    assert word in stages(inputs)


@pytest.mark.parametrize("target, name, stage, shape", [
    (MALI, "conv2d_nchw_winograd.mali", "U", lambda a, co, ci, b: (a, a, co // b, ci, b)),
    (ARM, "conv2d_nchw_winograd.arm_cpu", "U", lambda a, co, ci, b: (a, a, co // b, ci, b)),
    ("opencl", "conv2d_nchw_winograd.cuda", "kernel_pack", lambda a, co, ci, b: (a, a, ci, co)),
])  # fmt: skip
def test_the_transformed_weight_is_packed_ahead_of_time(target, name, stage, shape):
    """The network holds Winograd's form of the weight, G w G^T in the order of the kernel, and no kernel makes it."""
    mod, params = small_network()
    tasks = [t for t in autotvm.task.extract_from_program(mod, params, target, ops=[CONV]) if t.name == name]
    assert [t.args[1][1] for t in tasks] == [(8, 4, 3, 3)]
    log = records(tasks, pick=lambda n: n // 3)
    lib = build(mod, params, target, log)
    found = [v for v in lib.get_params().values() if v.ndim >= 4 and v.shape[0] == v.shape[1] in (4, 6)]
    assert len(found) == 1
    tile = found[0].shape[0] - 2
    g = winograd_matrices(tile, 3)[2]
    form = np.einsum("ex,oixy,uy->euoi", g, params["w0"], g)  # [a, a, CO, CI]
    block = found[0].shape[-1]
    if len(shape(tile + 2, 8, 4, block)) == 5:
        want = form.reshape(tile + 2, tile + 2, 8 // block, block, 4).transpose(0, 1, 2, 4, 3)
    else:
        want = form.transpose(0, 1, 3, 2)
    assert found[0].shape == shape(tile + 2, 8, 4, block)
    np.testing.assert_allclose(found[0], want, rtol=1e-6, atol=1e-6)
    packs = re.compile(rf"\b{stage}\[[^=;]*\] =")
    assert not packs.search(stages(lib)) and f"{stage}_packed" in stages(lib)
    inputs = build(mod, None, target, log)  # without params a kernel has to
    assert packs.search(stages(inputs)) and not inputs.get_params()


def test_a_record_that_does_not_fit(caplog):
    """The default schedule is used, and a warning says why."""
    mod, params = small_network()
    tasks = autotvm.task.extract_from_program(mod, params, MALI, ops=[CONV])
    (inp, res), *_ = records(tasks[:1])
    inp.config._entity_map.pop("ann_spatial")
    with caplog.at_level(logging.WARNING):
        lib = build(mod, params, MALI, [(inp, res)])
    assert "its template failed" in caplog.text and "ann_spatial" in caplog.text
    np.testing.assert_array_equal(output(lib, MALI, X), output(build(mod, params, MALI), MALI, X))


def test_what_is_not_tuned_is_counted(caplog):
    mod, params = small_network()
    tasks = autotvm.task.extract_from_program(mod, params, LLVM, ops=[DENSE])
    with caplog.at_level(logging.WARNING, "autotvm"):
        build(mod, params, LLVM, records(tasks))
    assert "4 of 5 tunable operators have no record" in caplog.text
