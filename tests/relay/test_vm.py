"""``relay.vm`` and ``runtime.vm``; modules of loops; features of loops."""

import numpy as np
import pytest

import nestsmith as ns
from nestsmith import auto_scheduler, relay, te, tir
from nestsmith.runtime.vm import Executable, VirtualMachine

RNG = np.random.default_rng(0)


def test_a_network_of_fixed_types(tmp_path):
    x, w = relay.var("x", shape=(4, 8)), relay.var("w", shape=(3, 8))
    mod = ns.IRModule.from_expr(relay.Function([x, w], relay.Tuple([relay.nn.relu(relay.nn.dense(x, w)), x])))
    data, weight = RNG.random((4, 8), "float32"), RNG.random((3, 8), "float32") - 0.5
    exe = relay.vm.compile(mod, "llvm", params={"w": weight})
    vm, want = VirtualMachine(exe, ns.cpu()), np.maximum(data @ weight.T, 0)
    for got in (vm.invoke("main", data), vm.run(x=data), vm.get_outputs()):
        np.testing.assert_allclose(got[0].numpy(), want, 1e-5)
        np.testing.assert_array_equal(got[1].numpy(), data)
    assert vm.benchmark(ns.cpu(), data, repeat=1, number=1).mean > 0
    code, lib = exe.save()
    lib.export_library(tmp_path / "net.so")
    again = VirtualMachine(Executable.load_exec(code, ns.runtime.load_module(tmp_path / "net.so")), [ns.cpu()])
    again.set_input("main", data)
    np.testing.assert_allclose(again.run()[0].numpy(), want, 1e-5)
    with pytest.raises(ValueError, match="func_name 'other' is unknown"):
        vm.invoke("other", data)
    with pytest.raises(ValueError, match="never set: 'x'"):
        VirtualMachine(exe, ns.cpu()).run()
    with pytest.raises(ValueError, match=r"lower\(mod, target\)"):
        relay.vm.VMCompiler().get_exec()


def test_a_branch_is_taken_when_it_runs():
    x, c = relay.var("x", shape=(3,)), relay.var("c", shape=(), dtype="bool")
    exe = relay.vm.compile(ns.IRModule.from_expr(relay.Function([c, x], relay.If(c, x + relay.const(1.0), x))), "llvm")
    vm, data = VirtualMachine(exe, ns.cpu()), RNG.random(3, "float32")
    for taken in (True, False):
        np.testing.assert_allclose(vm.invoke("main", np.array(taken), data).numpy(), data + taken)
    with pytest.raises(ValueError, match="waits for values"):
        exe.save()


def test_kernels_of_a_network_and_their_features():
    a, b = (relay.var(n, shape=(32, 32)) for n in "ab")
    mod, params = relay.vm.VMCompiler().optimize(ns.IRModule.from_expr(relay.Function([a, b], relay.nn.dense(a, b))), target="llvm")
    (func,) = [f for v, f in mod.functions.items() if v.name_hint != "main"]
    assert params == {} and isinstance(func, tir.PrimFunc) and "primfn" in str(mod)
    found = auto_scheduler.feature.named_features_from_primfunc(func)
    assert found["float_mad"].sum() + found["float_addsub"].sum() >= 32**3


def test_features_of_loops_by_hand_and_of_a_schedule():
    x = te.placeholder((64, 64), name="x")
    y = te.compute((64, 64), lambda i, j: x[j, i] + 1, name="y")
    f = ns.lower(te.create_schedule(y.op), [x, y], tensors=True)["main"]
    ib = tir.ir_builder.create()
    a, b = (tir.decl_buffer((64, 64), "float32", n) for n in "ab")
    source, target = ib.buffer_ptr(a), ib.buffer_ptr(b)
    with ib.for_range(0, 64) as i, ib.for_range(0, 64) as j:
        target[i, j] = source[j, i] + 1.0
    hand = tir.PrimFunc([a, b], ib.get())
    names = auto_scheduler.feature.named_features_from_primfunc(hand)
    rows = auto_scheduler.feature.features_from_primfunc(f)
    np.testing.assert_array_equal(rows, auto_scheduler.feature.features_from_primfunc(hand))
    assert rows.shape == (1, 164) and names["float_addsub"] == [64 * 64] and names["B0.unique_bytes"] == [64 * 64 * 4]
    state = auto_scheduler.ComputeDAG([x, y]).get_init_state()
    task = auto_scheduler.SearchTask(compute_dag=auto_scheduler.ComputeDAG([x, y]), workload_key="features", target="llvm")
    (of_state,) = auto_scheduler.feature.get_per_store_features_from_states([state], task, log=False)
    np.testing.assert_array_equal(np.delete(rows, range(157, 161), 1), np.delete(of_state, range(157, 161), 1))  # those of its allocation


def test_what_lower_returns_is_built():
    x = te.placeholder((8,), name="x")
    y = te.compute((8,), lambda i: x[i] + 1, name="y")
    low = ns.lower(te.create_schedule(y.op), [x, y])
    named = ns.IRModule.from_expr(low["main"].with_attr("global_symbol", "plus"))
    assert [v.name_hint for v in named.functions] == ["plus"]
    for mod in (low, named, ns.IRModule({"main": low["main"]})):
        a, b = ns.nd.array(RNG.random(8, "float32")), ns.nd.empty((8,))
        ns.build(mod, target="llvm")(a, b)
        np.testing.assert_allclose(b.numpy(), a.numpy() + 1)
    v = relay.var("v", shape=(2,))
    with pytest.raises(ValueError, match="relay.build"):
        ns.build(ns.IRModule.from_expr(v), target="llvm")
