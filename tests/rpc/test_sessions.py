"""Sessions: what a user does on a device that a tracker lends, and in a process of this machine."""

import concurrent.futures
import contextlib
import gc
import io
import json
import os
import pathlib
import platform
import re
import signal
import socket
import subprocess
import sys
import threading
import traceback

import numpy as np
import pytest
from fleet import manned

import nestsmith
from helpers import PATIENCE, wait_until
from nestsmith import nd, relay, rpc, te
from nestsmith.cluster import client, commands, settings
from nestsmith.cluster.runner import command_of
from nestsmith.contrib import graph_runtime, utils
from nestsmith.error import TVMError

fleet = manned("rk3399")


@pytest.fixture(params=["local", "tracker"])
def remote(request, fleet):
    """A session here, and one that the tracker gave."""
    s = rpc.LocalSession() if request.param == "local" else rpc.request_remote("rk3399", "0.0.0.0", fleet.port, timeout=600)
    with s:
        yield s


def add_one(n=1000):
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] + 1.0, name="B")
    return nestsmith.build(te.create_schedule(b.op), [a, b], "llvm", name="addone")


def network():
    x, w = relay.var("x", shape=(1, 8)), relay.var("w", shape=(4, 8))
    weights = np.random.default_rng(0).integers(-3, 4, (4, 8)).astype("float32")
    return nestsmith.IRModule.from_expr(relay.Function([x, w], relay.nn.relu(relay.nn.dense(x, w)))), weights


@pytest.mark.parametrize("name", ["f.so", "f.tar"])
def test_an_operator_is_uploaded_run_and_timed(remote, name):
    tmp = utils.tempdir()
    add_one().export_library(tmp.relpath(name))
    remote.upload(tmp.relpath(name))
    module, dev = remote.load_module(name), remote.cpu(0)
    a, b = nd.array(np.arange(1000, dtype="float32"), dev), nd.empty((1000,), "float32", dev)
    module["addone"](a, b)
    np.testing.assert_array_equal(b.numpy(), np.arange(1000) + 1)
    times = module.time_evaluator("addone", dev, number=3, repeat=4)(a, b).results
    assert len(times) == 4 and all(t > 0 for t in times)
    with pytest.raises(ValueError, match="shape"):
        module["addone"](a, nd.empty((3,), "float32", dev))
    assert dev != nestsmith.cpu(0) and dev.exist and dev == remote.device("cpu")


@pytest.mark.parametrize("target, host", [("llvm", None), ("opencl -device=mali", "llvm")])
def test_a_network_runs_and_is_timed_on_the_device(remote, target, host):
    mod, weights = network()
    tmp = utils.tempdir()
    lib = relay.build(mod, target=nestsmith.target.Target(target, host=host), params={"w": weights})
    lib.export_library(tmp.relpath("net.tar"))
    remote.upload(tmp.relpath("net.tar"))
    dev = remote.context(target, 0)
    module = graph_runtime.GraphModule(remote.load_module("net.tar")["default"](dev))
    x = np.arange(8, dtype="float32").reshape(1, 8)
    with pytest.raises(ValueError, match="never set"):
        module.run()
    module.set_input("x", nd.array(x))
    module.run()
    np.testing.assert_array_equal(module.get_output(0).numpy(), np.maximum(x @ weights.T, 0))
    assert list(module.get_input_info()[0]) == ["x"]
    results = module.module.time_evaluator("run", dev, number=1, repeat=30)().results
    with pytest.raises(ValueError, match="timed as a whole"):
        module.module.kernel_seconds(1)
    assert len(results) == 30 and min(results) > 0


def test_a_file_comes_back_as_it_went(remote):
    data = bytes(range(256)) * 1000
    remote.upload(data, "blob.bin")
    assert remote.download("blob.bin") == data and remote.listdir() == ["blob.bin"]
    remote.get_function("tvm.rpc.server.remove")("blob.bin")
    assert remote.listdir() == []
    with pytest.raises(ValueError, match="blob.bin"):
        remote.download("blob.bin")


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "..", ".", "a/b", "a\\b", "", "x" * 200, "a\nb", "a\0b"])
def test_the_directory_of_a_session_cannot_be_left(remote, name):
    for act in (lambda: remote.upload(b"x", name), lambda: remote.download(name), lambda: remote.remove(name),
                lambda: remote.ask({"op": "load", "name": name})):  # fmt: skip
        with pytest.raises((ValueError, OSError)):
            act()


def test_a_runner_leaves_no_directory_behind(tmp_path):
    """On a board it makes its own, and an endless program ends with the process."""
    from nestsmith.cluster import runner as rooms

    path, here = crash("for (volatile unsigned i = 0;;) i++;"), {**os.environ, "TMPDIR": str(tmp_path)}
    for limit, status in ((250, 124), (None, 0)):
        child = subprocess.Popen(rooms.command_of("local"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=here)

        def ask(request, data=b""):
            head = json.dumps(request).encode()
            child.stdin.write(rooms._LENGTHS.pack(len(head), len(data)) + head + data)
            child.stdin.flush()
            lengths = child.stdout.read(rooms._LENGTHS.size)
            return json.loads(child.stdout.read(rooms._LENGTHS.unpack(lengths)[0])) if lengths else None

        ask({"op": "put", "name": "crash.so"}, pathlib.Path(path.relpath("crash.so")).read_bytes())
        module, tensor = ask({"op": "load", "name": "crash.so"})["module"], ask({"op": "alloc", "device": [1, 0], "bytes": 32})["tensor"]
        assert len(list(tmp_path.iterdir())) == 1
        if limit:
            assert ask({"op": "run", "module": module, "args": [tensor] * 2, "limit_ms": limit}) is None
        child.stdin.close()
        assert child.wait(60) == status
        assert not list(tmp_path.iterdir())


def test_links_in_the_directory_of_a_session_are_not_followed(tmp_path):
    from nestsmith.cluster.runner import Runner

    secret = tmp_path / "secret"
    secret.write_text("secret")
    runner = Runner("local")
    try:
        os.symlink(secret, os.path.join(runner._made.path, "soft"))
        os.link(secret, os.path.join(runner._made.path, "hard"))
        for name in ("soft", "hard"):
            with pytest.raises((ValueError, OSError)):
                runner.ask({"op": "get", "name": name})
            with pytest.raises((ValueError, OSError)):
                runner.ask({"op": "put", "name": name}, b"overwritten")
        assert secret.read_text() == "secret"
    finally:
        runner.kill()
    assert not os.path.exists(runner._made.path)


def crash(how):
    """A library whose program does not come back from its first call."""
    f = add_one(8)
    source = re.sub(r"\)\s*\{", lambda m: m[0] + how, f.source, count=1)
    made = type(f)(source, f.manifest, b"", "llvm")
    path = utils.tempdir()
    made.export_library(path.relpath("crash.so"))
    return path


@pytest.mark.parametrize("how, error, text", [
    ("*(volatile int *)8 = 1;", rpc.RPCError, "signal 11"),
    ("for (volatile unsigned i = 0;;) i++;", rpc.RPCSessionTimeoutError, "longer than 1 s"),
    ("return 7;", TVMError, "7"),
])  # fmt: skip
def test_what_a_program_does_ends_its_session_and_no_more(fleet, how, error, text):
    path = crash(how)
    with rpc.request_remote("rk3399", "127.0.0.1", fleet.port, timeout=600) as remote:
        remote.upload(path.relpath("crash.so"))
        handle = remote.ask({"op": "load", "name": "crash.so"})[0]["module"]
        a = nd.array(np.zeros(8, "float32"), remote.cpu(0))
        with pytest.raises(error, match=text):
            limit = 1 if error is rpc.RPCSessionTimeoutError else PATIENCE
            remote.ask({"op": "run", "module": handle, "entry": "addone", "args": [a.buffer.tensor] * 2}, limit=limit)
    with rpc.request_remote("rk3399", "127.0.0.1", fleet.port) as remote:
        assert remote.listdir() == []


def test_what_was_in_a_process_that_ended_is_nothing_else_now(fleet):
    path = crash("*(volatile int *)8 = 1;")
    with rpc.request_remote("rk3399", "127.0.0.1", fleet.port) as remote:
        for k in range(2):
            old = nd.array(np.zeros(8, "float32"), remote.cpu(0))
            remote.upload(path.relpath("crash.so"))
            module = remote.ask({"op": "load", "name": "crash.so"})[0]["module"]
            with pytest.raises(rpc.RPCError, match="signal 11"):
                remote.ask({"op": "run", "module": module, "entry": "addone", "args": [old.buffer.tensor] * 2})
            new = nd.array(np.full(8, k + 1, "float32"), remote.cpu(0))
            with pytest.raises(ValueError, match="was in a process of this session that has ended"):
                old.numpy()
            del old
            assert set(new.numpy()) == {k + 1}


def test_places_of_what_is_let_go_are_used_again_and_their_numbers_are_not(remote):
    ask, seen = remote.ask, set()
    kept = ask({"op": "alloc", "device": [1, 0], "bytes": 4})[0]["tensor"]
    ask({"op": "write", "tensor": kept}, b"kept")
    for _ in range(200):
        handle = ask({"op": "alloc", "device": [1, 0], "bytes": 4})[0]["tensor"]
        assert ask({"op": "read", "tensor": handle})[1] == bytes(4) and handle not in seen
        ask({"op": "write", "tensor": handle}, b"else")
        ask({"op": "drop", "handle": handle})
        seen.add(handle)
        for request in ({"op": "read", "tensor": handle}, {"op": "drop", "handle": handle}):
            with pytest.raises(ValueError, match="no such handle"):
                ask(request)
    assert len({h % 2**20 for h in seen}) == 1 and ask({"op": "read", "tensor": kept})[1] == b"kept"


def test_the_selftest_says_what_the_runner_finds():
    done = subprocess.run(command_of("local", ["--selftest"]), capture_output=True, text=True, timeout=120, check=True)
    assert "directory for sessions: can be made" in done.stdout
    assert re.search(r"^cpu 0: .+, memory works$", done.stdout, re.M) and re.search(r"^cuda(: none \(.+\)| 0: )", done.stdout, re.M)


def test_a_session_ends_when_its_time_is_over(fleet):
    path = crash("for (volatile unsigned i = 0;;) i++;")
    with pytest.raises(rpc.RPCSessionTimeoutError, match=r"0\.3 s"):  # on a busy machine it is over before it was begun
        with rpc.request_remote("rk3399", "127.0.0.1", fleet.port, timeout=0.3) as remote:
            while True:
                remote.upload(path.relpath("crash.so"))


def query(port, *options):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert commands.query([f"--port={port}", "--host=0.0.0.0", *options]) == 0
    return out.getvalue()


def test_the_query_prints_what_tvm_prints(fleet):
    address = re.search(r"(\S+)    server:rk3399", query(fleet.port))[1]
    want = (
        f"Tracker address 0.0.0.0:{fleet.port}\n\nServer List\n{'-' * 30}\nserver-address           key\n{'-' * 30}\n"
        f"{address:>21}    server:rk3399\n{'-' * 30}\n\nQueue Status\n{'-' * 30}\nkey      total  free  pending\n{'-' * 30}\n"
        f"rk3399   1      1     0      \n{'-' * 30}\n\n"
    )
    assert query(fleet.port) == want
    tracker = rpc.connect_tracker("127.0.0.1", fleet.port)
    assert tracker.text_summary() == want.split("\n\n", 1)[1][:-1]
    with tracker.request("rk3399"):
        assert "rk3399   1      0     0" in query(fleet.port)
        told = query(fleet.port, "--verbose")
        assert re.search(rf"busy with \S+:{os.getpid()}, for \d+ s", told) and "last event of rk3399:" in told
    tracker.close()


def test_a_device_is_tried_step_by_step(fleet, capsys):
    said = [re.sub(r"[\d.]+ ms$", "", line) for line in query(fleet.port, "--probe=rk3399").splitlines()]
    assert said[0] == f"the tracker 127.0.0.1:{fleet.port} answers: "
    assert re.fullmatch(r"it lends 127\.0\.0\.1:\d+ for key rk3399: ", said[1]) and said[2] == f"a session begins on {platform.machine()}: "
    assert said[3] == "a file of 1 MiB goes there and comes back: " and said[-1] == "the device is given back"
    assert 1 <= len(said[4:-1]) and all(line.endswith(" keeps 1 MiB: ") for line in said[4:-1])
    assert "rk3399   1      1     0" in query(fleet.port)
    assert commands.query([f"--port={fleet.port}", "--probe=" + "k" * 1000]) == 1
    assert "error: key is 'kkk" in capsys.readouterr().err


def test_servers_find_free_ports_beside_one_another(fleet, closing):
    """With the same range of ports, as all have that are started with none."""
    first = re.search(r":(\d+)    server:rk3399", query(fleet.port))[1]
    second = closing(fleet.serve("beside", f"--port={first}", "--port-end=65536"))
    assert int(re.search(r":(\d+)    server:beside", query(fleet.port))[1]) > int(first)
    assert second.stop() == 0


def test_ports_that_cannot_be_had_are_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for end in (0, port, port + 1):
            with pytest.raises(settings.ClusterError, match=rf"port {port} is not free on 127\.0\.0\.1; give another range \(--port,"):
                settings.free_port("127.0.0.1", port, end)
        assert settings.free_port("127.0.0.1", port, 65536) > port
    assert settings.free_port("127.0.0.1", 0, 9199) == 0
    with pytest.raises(settings.ClusterError, match=r"cannot listen on 192\.0\.2\.1:9190: .*; give an address of this machine \(--host\)"):
        settings.free_port("192.0.2.1", 9190, 9199)
    with pytest.raises(ValueError, match="port is 65536; ports end at 65535"):
        settings.free_port("127.0.0.1", 65536, 65537)


def test_who_waits_is_told_why_and_is_shown(fleet, monkeypatch, caplog):
    """Key, tracker, what the device does and what happened last; the query names both."""
    monkeypatch.setattr(client, "TELL_SECONDS", 0.1)
    with concurrent.futures.ThreadPoolExecutor(1) as pool, rpc.request_remote("rk3399", "127.0.0.1", fleet.port):
        later = pool.submit(rpc.request_remote, "rk3399", "127.0.0.1", fleet.port, 7)
        me = rf"\S+:{os.getpid()}"
        want = rf"waiting for a device of key 'rk3399' at tracker 127.0.0.1:{fleet.port} for \d+ s: \S+ is busy with {me}, for \d+ s; "
        assert wait_until(lambda: re.search(want + rf"last event: \S+ was lent to {me}", caplog.text)), caplog.text
        assert re.search(rf"{me} waits for rk3399 \(priority 7\), for \d+ s", query(fleet.port, "--verbose"))
    later.result().close()


def test_request_and_run_gives_the_device_back(fleet):
    tracker = rpc.connect_tracker("127.0.0.1", fleet.port)
    assert tracker.request_and_run("rk3399", lambda remote: remote.listdir()) == []
    assert tracker.summary()["queue_info"]["rk3399"] == {"total": 1, "free": 1, "pending": 0}
    with pytest.raises(rpc.RPCError, match=r"'rpi' was there.*'rk3399'.*query_rpc_tracker"):
        tracker.request("rpi", wait_limit=0.1)
    tracker.close()


def test_sessions_and_arrays_that_are_collected_in_the_thread_of_the_connections_do_not_stop_it(fleet):
    """Garbage is collected in whatever thread comes by."""
    from nestsmith.cluster.engine import LOOP

    remote = rpc.request_remote("rk3399", "127.0.0.1", fleet.port)
    held = [remote, nd.array(np.zeros(4, "float32"), remote.cpu(0))]
    del remote

    async def collect():
        held.clear()
        gc.collect()

    LOOP.start(collect()).result(30)
    with rpc.request_remote("rk3399", "127.0.0.1", fleet.port) as again:
        assert again.listdir() == []


def test_threads_take_turns_in_a_session(remote):
    arrays = [nd.array(np.full(1000, k, "float32"), remote.cpu(0)) for k in range(4)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda i: set(arrays[i % 4].numpy()), range(200)))
    assert found == [{i % 4} for i in range(200)]


@pytest.mark.parametrize("seconds, error", [(-1, ValueError), (0, ValueError), (float("nan"), ValueError), ("1", TypeError)])
def test_a_local_session_lasts_a_number_of_seconds(seconds, error):
    with pytest.raises(error, match=f"timeout is '?{seconds}'?; it must be"):
        rpc.LocalSession(timeout=seconds)


def test_what_an_interrupted_request_would_get_is_not_the_answer_to_the_next():
    """Ctrl-C while the session's process has not answered yet, which is made sure of by stopping it."""
    session = rpc.LocalSession()
    one, two = (nd.array(np.full(4, k, "float32"), session.cpu(0)) for k in (1, 2))
    runner, me = session._link.runner.pid, threading.get_ident()

    def waits():
        return any(f.f_code.co_name == "_pump" for f, _ in traceback.walk_stack(sys._current_frames()[me]))

    def interrupt():
        if wait_until(waits):
            os.kill(os.getpid(), signal.SIGINT)
        with contextlib.suppress(ProcessLookupError):
            os.kill(runner, signal.SIGCONT)

    os.kill(runner, signal.SIGSTOP)
    other = threading.Thread(target=interrupt)
    with pytest.raises(KeyboardInterrupt):
        other.start()
        one.numpy()
    other.join()
    with pytest.raises(rpc.RPCError, match="was ended, and what was in it is gone"):
        two.numpy()
    session.close()


@pytest.mark.parametrize("module", ["rpc_tracker", "rpc_server", "query_rpc_tracker"])
def test_without_the_extra_there_is_one_error_with_the_remedy(module):
    code = f"import sys, runpy; sys.modules['distributed'] = None; runpy.run_module('nestsmith.exec.{module}', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "pip install nestsmith[cluster]" in done.stderr, done.stderr


def test_local_measuring_does_not_need_the_extra():
    code = "import sys; sys.modules['distributed'] = None; from nestsmith import auto_scheduler, autotvm; auto_scheduler.LocalRunner()"
    subprocess.run([sys.executable, "-c", code], check=True)
