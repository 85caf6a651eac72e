"""autotvm.RPCRunner: a template's configurations on devices of a tracker."""

import pytest
from fleet import Fleet

from nestsmith import autotvm, te
from nestsmith.error import RPCError
from nestsmith.target import Target


@autotvm.template("remote_template_matmul")
def remote_template_matmul(n):
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = te.create_schedule(c.op)
    cfg = autotvm.get_config()
    y, x = s[c].op.axis
    cfg.define_split("tile_y", y, num_outputs=2)
    cfg.define_split("tile_x", x, num_outputs=2)
    yo, yi = cfg["tile_y"].apply(s, c, y)
    xo, xi = cfg["tile_x"].apply(s, c, x)
    s[c].reorder(yo, xo, s[c].op.reduce_axis[0], yi, xi)
    return s, [a, b, c]


@pytest.fixture(scope="module")
def fleet():
    f = Fleet()
    f.man("board", "board")
    yield f
    f.close()


def test_a_template_is_tuned_over_the_tracker(fleet, tmp_path):
    task = autotvm.task.create("remote_template_matmul", args=(32,), target=Target("llvm"))
    log = str(tmp_path / "log.json")
    runner = autotvm.RPCRunner("board", host="0.0.0.0", port=fleet.port, number=2, repeat=1, timeout=5)
    tuner = autotvm.tuner.RandomTuner(task)
    tuner.tune(
        n_trial=12, measure_option=autotvm.measure_option(autotvm.LocalBuilder(n_parallel=4), runner),
        callbacks=[autotvm.callback.log_to_file(log)],
    )  # fmt: skip
    records = list(autotvm.record.load_from_file(log))
    assert len(records) == 12 and all(r.error_no == 0 for _, r in records)
    assert len({i.config.index for i, _ in records}) == 12
    with autotvm.measure.request_remote("board", "0.0.0.0", fleet.port, timeout=100) as remote:
        assert remote.listdir() == []


def test_without_a_device_a_task_does_not_begin(fleet, monkeypatch):
    from nestsmith.autotvm.measure import remote

    monkeypatch.setattr(remote, "WAIT_SECONDS", 0.1)
    runner = autotvm.RPCRunner("nobody", host="127.0.0.1", port=fleet.port)
    with pytest.raises(RPCError, match=rf"'nobody'.*{fleet.port}.*query_rpc_tracker"):
        runner.set_task(autotvm.task.create("remote_template_matmul", args=(32,), target=Target("llvm")))
