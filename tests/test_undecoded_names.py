"""Names that are no UTF-8: refused where they come in, or carried unchanged; never a crash or a changed name."""

import os

import numpy as np
import pytest

import nestsmith as ns
from nestsmith import auto_scheduler, relay, runtime, te
from nestsmith.auto_scheduler.measure_record import load_records, save_records
from nestsmith.contrib import graph_executor

BAD = "x\udcff"  # how Python shows the byte 0xff of a file name
RECORD = b'{"i": [["[\\"k\\"]", "llvm"], [[], []]], "r": [[0.1], 0, 0.1, 1], "v": "v0.6"}\n'


@pytest.mark.parametrize("name", [BAD, "a\0b"])
@pytest.mark.parametrize(
    "make",
    [
        lambda n: te.placeholder((3,), name=n),
        lambda n: te.compute((3,), lambda i: i, name=n),
        lambda n: te.compute((3,), lambda i: i, tag=n),
        lambda n: te.var(n),
        lambda n: te.reduce_axis((0, 3), n),
        lambda n: relay.var(n, shape=(3,)),
        lambda n: relay.save_param_dict({n: np.ones(3)}),
        lambda n: auto_scheduler.register_workload(n, f=lambda: []),
        lambda n: ns.target.Target({"kind": "llvm", "mcpu": n}),
        lambda n: ns.target.Target("llvm -mcpu=" + n),
    ],
)
def test_refused_where_they_come_in(make, name):
    with pytest.raises(ValueError, match="cannot hold NUL or half characters"):
        make(name)


def test_parameter_files():
    with pytest.raises(TypeError, match="must be a str"):
        relay.save_param_dict({b"w": np.ones(3)})
    data = bytes(relay.save_param_dict({"a\u00e9b": np.ones(3)}))
    assert list(relay.load_param_dict(data)) == ["a\u00e9b"]
    with pytest.raises(ValueError, match="is no UTF-8"):
        relay.load_param_dict(data.replace("\u00e9".encode(), b"\xff\xfe"))


def test_a_line_of_a_log_is_skipped_and_told(tmp_path, caplog):
    log = tmp_path / "log.json"
    log.write_bytes(RECORD.replace(b"k", b"\xff") + RECORD)
    assert [i.task.workload_key for i, _ in load_records(log)] == ['["k"]']
    assert "line 1" in caplog.text and "no UTF-8" in caplog.text


def test_files_and_directories(tmp_path):
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/dir\xff")
    os.mkdir(folder)
    x, w = relay.var("x", shape=(3, 4)), relay.var("w\u00e9", shape=(5, 4))
    mod = ns.IRModule.from_expr(relay.Function([x, w], relay.nn.dense(x, w)))
    lib = relay.build(mod, "llvm", params={"w\u00e9": np.ones((5, 4), "float32")})
    for name in ("net.tar", "net.so"):
        lib.export_library(f"{folder}/{name}")
        m = graph_executor.GraphModule(runtime.load_module(f"{folder}/{name}")["default"](ns.cpu(0)))
        m.set_input("x", np.ones((3, 4), "float32"))
        m.run()
        assert (m.get_output(0).numpy() == 4).all()
    with open(f"{folder}/log.json", "wb") as f:
        f.write(RECORD)
    inp, res = next(load_records(f"{folder}/log.json"))
    save_records(f"{folder}/other.json", [inp], [res])
    assert len(list(load_records(f"{folder}/other.json"))) == 1
