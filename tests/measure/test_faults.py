"""Campaigns of injected faults (see faults.py): the right verdicts, and nothing lost, changed or left behind."""

import pytest

from faults import campaign
from nestsmith import _core
from nestsmith.auto_scheduler import RecordReader, RecordToFile

opencl = pytest.mark.skipif(not _core.device_exists(4, 0)[0], reason="no OpenCL device (pocl-opencl-icd)")
DEVICES = ["cpu", pytest.param("opencl", marks=opencl)]


@pytest.mark.some(1)
@pytest.mark.parametrize("device, n", [("cpu", 36), pytest.param("opencl", 12, marks=opencl)])
def test_a_campaign(tmp_path, device, n):
    campaign(device, n, 1, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("seed", range(25))
def test_10000_faults(tmp_path, device, seed):
    """About 86 of 100 candidates of a campaign on the CPU are faulty, 78 on OpenCL."""
    campaign(device, 250, 100 + seed, tmp_path)


def test_full_disk_loses_no_record(tmp_path):
    """The log is written late, not lost, when the disk is full for a while."""
    from nestsmith import auto_scheduler, target as targets, te

    @auto_scheduler.register_workload(override=True)
    def faults_plus(n):
        a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
        r = te.reduce_axis((0, n), name="k")
        return [a, b, te.compute((n, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=[r]), name="C")]

    real, log = tmp_path / "real.json", tmp_path / "log.json"
    log.symlink_to("/dev/full")
    task = auto_scheduler.SearchTask(func=faults_plus, args=(16,), target=targets.Target("llvm"))
    rounds = []

    def room(policy, inputs, results):
        rounds.append(len(inputs))
        if len(rounds) == 2:
            log.unlink()
            log.symlink_to(real)

    tuner = auto_scheduler.TaskScheduler([task], callbacks=[])
    tuner.tune(
        auto_scheduler.TuningOptions(
            9,
            num_measures_per_round=3,
            verbose=0,
            runner=auto_scheduler.LocalRunner(number=1, min_repeat_ms=0),
            measure_callbacks=[RecordToFile(str(log)), room],
        ),
        search_policy="sketch.random",
        search_policy_params={"evolutionary_search_population": 16, "sample_init_min_population": 4},
    )
    assert sum(rounds) == tuner.ct == 9 == len(list(RecordReader(str(real))))
