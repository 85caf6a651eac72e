"""Errors of runs end in the thread whose run it was, where threads share a device, or a library on it."""

import threading

import numpy as np
import pytest

import nestsmith as ns
from nestsmith import relay
from nestsmith.contrib import graph_executor

GOOD = np.arange(16)


def library(target):
    x, i = relay.var("x", shape=(33, 8)), relay.var("i", shape=(16,), dtype="int64")
    rows = relay.exp(relay.take(x, i, 0, mode="fast"))
    return relay.build(ns.IRModule.from_expr(relay.Function([x, i], rows)), target)


def network(lib, dev):
    net = graph_executor.GraphModule(lib["default"](dev))
    net.set_input("x", np.zeros((33, 8), "float32"))
    return net


@pytest.fixture(params=["llvm", "opencl"])
def target(request):
    if not ns.device("cpu" if request.param == "llvm" else request.param, 0).exist:
        pytest.skip("no device")
    return request.param


def device(target):
    return ns.device("cpu" if target == "llvm" else target, 0)


def result(net, index):
    net.set_input("i", index)
    net.run()
    return net.get_output(0).numpy()


def told(net, index):
    try:
        result(net, index)
    except RuntimeError as e:
        return str(e)
    return ""


def wrong(k):
    index = GOOD.copy()
    index[k % 16] = 100 + k
    return index


@pytest.mark.parametrize("shared", [False, True])
def test_each_thread_hears_of_its_own(target, shared):
    """Half of the threads run with bad indices only, half with good ones."""
    dev, faults = device(target), []
    one = library(target)
    nets = [network(one if shared else library(target), dev) for _ in range(4)]

    def bad(net):
        for k in range(100):
            if f"index {100 + k} is out of range" not in (text := told(net, wrong(k))):
                faults.append((k, text))

    def good(net):
        for _ in range(100):
            if text := told(net, GOOD):
                faults.append(text)

    threads = [threading.Thread(target=f, args=(net,)) for f, net in zip((bad, good, bad, good), nets, strict=True)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not faults, (len(faults), faults[:3])


def in_thread(f):
    out = []
    t = threading.Thread(target=lambda: out.append(f()))
    t.start()
    t.join()
    return out[0]


def test_whoever_reads_hears_of_it():
    """A thread that has ended, or one that only reads: no error is lost."""
    if not ns.opencl(0).exist:
        pytest.skip("no OpenCL device")
    net = network(library("opencl"), ns.opencl(0))

    def begin():
        net.set_input("i", wrong(7))
        net.run()

    def read():
        try:
            net.get_output(0).numpy()
        except RuntimeError as e:
            return str(e)
        return ""

    in_thread(begin)  # on a CPU it would end here
    assert "index 107 is out of range" in read() and not read()
    begin()
    assert "index 107 is out of range" in in_thread(read) and not in_thread(read)
