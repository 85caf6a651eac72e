"""autotvm.RPCRunner: a template's configurations on devices of a tracker."""

import numpy as np
import pytest
from fleet import manned

import nestsmith as ns
from nestsmith import autotvm, te
from nestsmith.autotvm.measure import MeasureInput, create_measure_batch
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


fleet = manned("board", "board")


def test_a_template_is_tuned_over_the_tracker(fleet, tmp_path):
    task = autotvm.task.create("remote_template_matmul", args=(32,), target=Target("llvm"))
    log = str(tmp_path / "log.json")
    runner = autotvm.RPCRunner("board", host="0.0.0.0", port=fleet.port, number=2, repeat=1, timeout=60)
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


def measured(task, runner, indices, n_parallel=1):
    option = autotvm.measure_option(autotvm.LocalBuilder(n_parallel=n_parallel), runner)
    batch = create_measure_batch(task, option)
    try:
        return batch([MeasureInput(task.target, task, task.config_space.get(i)) for i in indices])
    finally:
        getattr(batch, "close", bool)()


@pytest.mark.filterwarnings("ignore:measuring uses the given inputs")
def test_a_module_loader_brings_artifacts_onto_the_boards(fleet):
    """TVM's way: the loader gets what a session is opened with, and a file; the runner times what it yields. Two at the same time."""
    task = autotvm.task.create("remote_template_matmul", args=(32,), target=Target("llvm"))
    seen = []

    def set_up(remote, build_result):
        seen.append((remote.listdir(), build_result.filename.rsplit(".")[-1], build_result.arg_info))

    loader = autotvm.measure.default_module_loader(set_up)
    runner = autotvm.RPCRunner("board", "127.0.0.1", fleet.port, n_parallel=2, repeat=3, timeout=30, module_loader=loader)
    assert runner.remote_kwargs()["device_key"] == "board" and runner.cooldown_interval == 0.1
    results = measured(task, runner, [0, 3, 5])
    assert [(r.error_no, len(r.costs)) for r in results] == [(0, 1)] * 3, results
    assert seen == [([], "tar", (((32, 32), "float32"),) * 3)] * 3
    runner.ref_input = [np.zeros((32, 32), "float32")] * 3
    assert measured(task, runner, [0])[0].error_no == 0

    def broken(remote, build_result):
        raise OSError("no power")

    runner.module_loader = autotvm.measure.default_module_loader(broken)
    (failed,) = measured(task, runner, [0])
    assert failed.error_no == autotvm.measure.MeasureErrorNo.RUNTIME_DEVICE and "no power" in failed.costs[0]


def test_inputs_of_the_user_reach_the_boards(fleet):
    """They are those of the candidates and of what their results are compared with."""
    task = autotvm.task.create("remote_template_matmul", args=(32,), target=Target("llvm"))
    runner = autotvm.RPCRunner("board", "127.0.0.1", fleet.port, repeat=1, timeout=30, check="all", cooldown_interval=0)
    rng = np.random.default_rng(0)
    with pytest.warns(RuntimeWarning, match="be sure that they fit"):
        runner.ref_input = [rng.normal(size=(32, 32)).astype("float32") for _ in range(2)]
    assert [r.error_no for r in measured(task, runner, [0, 3])] == [0, 0]
    (rows, _), = [(held[1], key) for key, held in runner.engine._rows.items()]
    assert [row[1] for row in rows[:2]] == [x.tobytes() for x in runner.ref_input]
    np.testing.assert_allclose(np.frombuffer(rows[2][1], "float32").reshape(32, 32), runner.ref_input[0] @ runner.ref_input[1], rtol=1e-3, atol=1e-4)


def test_without_a_device_a_task_does_not_begin(fleet, monkeypatch):
    from nestsmith.autotvm.measure import remote

    monkeypatch.setattr(remote, "WAIT_SECONDS", 0.1)
    runner = autotvm.RPCRunner("nobody", host="127.0.0.1", port=fleet.port)
    with pytest.raises(RPCError, match=rf"'nobody'.*{fleet.port}.*query_rpc_tracker"):
        runner.set_task(autotvm.task.create("remote_template_matmul", args=(32,), target=Target("llvm")))


def test_whether_there_is_a_device(fleet):
    """Of the target's kind, under the key; a script asks before it begins."""
    from nestsmith.autotvm.measure.measure_methods import check_remote

    where = {"host": "127.0.0.1", "port": fleet.port, "timeout": 0.1}
    assert check_remote("llvm", "board", **where) and not check_remote("llvm", "nobody", **where)
    assert check_remote("cuda", "board", **where) == ns.cuda(0).exist
