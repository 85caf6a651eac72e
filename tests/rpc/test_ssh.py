"""Boards behind ssh: the runner is put on the host, started there and talked to over the connection. Once behind a stand-in for ssh
on the PATH, once behind OpenSSH's own server, which each connection starts for itself."""

import os
import pathlib
import shlex
import shutil
import subprocess
import sys

import numpy as np
import pytest
from fleet import Fleet, remote_matmul

import nestsmith
from helpers import wait_until
from nestsmith import auto_scheduler, nd, rpc, te
from nestsmith.cluster.runner import Runner

ROOT = pathlib.Path(__file__).parents[2]
PLACE = pathlib.Path(f"/tmp/nestsmith-runner-{os.getuid()}")
SSH = r"""#!/bin/bash
# options, the host, and a command for the shell of the user there, who has an environment of their own
while [[ "$1" == -* ]]; do [ "$1" = -o ] && shift; shift; done
[ "$1" = me@board ] || { echo "ssh: Could not resolve hostname ${1#*@}: Name or service not known" >&2; exit 255; }
shift
exec env -i HOME=/ PATH=/usr/bin:/bin THERE=1 sh -c "$*"
"""
SERVER = """
HostKey {0}/host
AuthorizedKeysFile {0}/me.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
SetEnv THERE=1
"""
CLIENT = """
Host board
  ProxyCommand {1} -i -f {0}/server
  User {2}
  IdentityFile {0}/me
  IdentitiesOnly yes
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  LogLevel ERROR
"""
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="hosts are Linux")


def stand_in(folder):
    """(NESTSMITH_SSH or None, the device) behind a script that is the `ssh` of the PATH."""
    (folder / "ssh").write_text(SSH)
    (folder / "ssh").chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}, "ssh:me@board"


def openssh(folder):
    """The same behind OpenSSH, without a port: a connection is a server of its own."""
    sshd = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    if not (sshd and shutil.which("ssh") and shutil.which("ssh-keygen")):
        pytest.skip("needs openssh-server and openssh-client (.ci/packages ci)")
    if os.getuid() == 0:
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)  # what a service manager does
    user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
    for name in ("host", "me"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    (folder / "server").write_text(SERVER.format(folder))
    (folder / "client").write_text(CLIENT.format(folder, sshd, user))
    ssh = ["ssh", "-F", str(folder / "client")]
    tried = subprocess.run([*ssh, f"{user}@board", "true"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if tried.returncode:  # an account without a shell, or one that is locked
        pytest.skip(f"OpenSSH's server does not let {user} in: {tried.stderr}")
    return {"NESTSMITH_SSH": shlex.join(ssh)}, f"ssh:{user}@board"


@pytest.fixture(scope="module", params=[stand_in, openssh], ids=lambda make: make.__name__)
def host(request, tmp_path_factory):
    """(environment of a server, its device)."""
    made = subprocess.run(["make", "-s", "QUIET=1", "-j2", "runner"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    environment, device = request.param(tmp_path_factory.mktemp("ssh"))
    environment["NESTSMITH_RUNNER"] = str(ROOT / "build/runner/nestsmith-runner")
    with pytest.MonkeyPatch.context() as m:
        for name, value in environment.items():
            m.setenv(name, value)
        yield environment, device
    PLACE.unlink(missing_ok=True)


@pytest.fixture(scope="module")
def fleet(host):
    with Fleet(**host[0]) as f:
        f.serve("far", f"--device={host[1]}")
        yield f


def test_a_program_runs_and_is_timed_on_the_host(fleet, tmp_path):
    a = te.placeholder((100,), name="A")
    b = te.compute((100,), lambda i: a[i] * 2.0 + 1.0, name="B")
    f = nestsmith.build(te.create_schedule(b.op), [a, b], "llvm", name="twice")
    with rpc.request_remote("far", "127.0.0.1", fleet.port) as remote:
        dev = remote.cpu(0)
        f.export_library(str(tmp_path / "f.so"))
        remote.upload(str(tmp_path / "f.so"))
        given, got = nd.array(np.arange(100, dtype="float32"), dev), nd.empty((100,), "float32", dev)
        module = remote.load_module("f.so")
        module["twice"](given, got)
        np.testing.assert_array_equal(got.numpy(), np.arange(100) * 2 + 1)
        assert min(module.time_evaluator("twice", dev, number=2, repeat=3)(given, got).results) > 0


def test_candidates_are_raced_and_checked_on_the_host(fleet):
    task = auto_scheduler.SearchTask(func=remote_matmul, args=(16,), target="llvm")
    inputs = [auto_scheduler.MeasureInput(task, s) for s in auto_scheduler.SketchPolicy(task, verbose=0).sample_initial_population()[:3]]
    runner = auto_scheduler.RPCRunner("far", "127.0.0.1", fleet.port, min_repeat_ms=1)
    results = runner.run(inputs, auto_scheduler.LocalBuilder(n_parallel=2).build(inputs, 0), 0)
    runner.close()
    assert [r.error_no for r in results] == [0] * 3 and any(r.extra["stage"] == "full" for r in results), results


def running():
    """Runners of this user on the host, as (number, environment)."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(entry / "exe").split(" ")[0] == str(PLACE):
                found.append((entry.name, (entry / "environ").read_bytes().split(b"\0")))
        except OSError:
            continue
    return found


def test_the_runner_is_the_hosts_process_and_ends_with_the_session(host):
    """Also one that is started while another runs, whose program is not written over."""
    one, two = Runner(host[1]), Runner(host[1])
    found = running()
    assert len(found) == 2 and all(b"THERE=1" in environment for _, environment in found)
    assert PLACE.stat().st_mode & 0o777 == 0o700 and not list(PLACE.parent.glob(PLACE.name + ".*"))
    assert one.ask({"op": "list"})[0] == two.ask({"op": "list"})[0]
    one.kill()
    two.kill()
    assert wait_until(lambda: not running()), running()


@pytest.mark.some(1)
def test_a_host_that_is_not_there_is_named(fleet):
    p = fleet.serve("lost", "--device=ssh:me@nowhere.invalid", ready=False)
    assert "nowhere.invalid" in p.wait("not registered")[0] + p.lines[-1]
    assert p.stop() == 0


def test_a_program_for_another_processor_is_told(fleet, host, tmp_path, monkeypatch):
    (tmp_path / "runner").write_bytes(b"\x7fELF" + bytes(100))
    monkeypatch.setenv("NESTSMITH_RUNNER", str(tmp_path / "runner"))
    with pytest.raises(rpc.RPCError, match=r"(?s)process ended \(exit status 12[67]\).*(Exec format|cannot execute)"):
        Runner(host[1])
