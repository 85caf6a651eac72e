"""Servers without a tracker: functions of Python, arrays, programs, limits, other users, keys, hops, proxies, TLS."""

import contextlib
import socket
import struct
import time

import numpy as np
import pytest

import nestsmith as ns
from nestsmith import rpc, te
from nestsmith.cluster.tls import make_tls
from nestsmith.registry import register_func, remove_global_func
from nestsmith.rpc import base, server, wire
from nestsmith.rpc.tracker import Tracker


@pytest.fixture
def served():
    made = rpc.Server(key="x1")
    yield made
    made.terminate()


@pytest.fixture
def remote(served):
    with rpc.connect("127.0.0.1", served.port, key="x1") as session:
        yield session


@pytest.fixture
def function():
    names = []

    def add(name, func):
        register_func(name, func)
        names.append(name)
        return name

    yield add
    for name in names:
        remove_global_func(name)


def test_functions_of_the_server(remote, function):
    call = remote.get_function(function("direct.echo", lambda *a: list(a)))
    values = [1, -(2**60), 2.5, "text \u00e4", None, True, b"\0bytes", [1, [b"x", "y"]]]
    assert call(*values) == values
    add = remote.get_function(function("direct.adder", lambda x: lambda y: x + y))(10)
    assert add(5) == 15 and remote.get_function(function("direct.apply", lambda f, x: f(x)))(add, 1) == 11
    with pytest.raises(ValueError, match="no function 'direct.none'"):
        remote.get_function("direct.none")
    with pytest.raises(TypeError, match="cannot be sent"):
        call(object())


def _fail(kind):
    raise {"key": KeyError, "value": ValueError, "zero": ZeroDivisionError}[kind](f"why {kind}")


@pytest.mark.parametrize(("kind", "error"), [("key", KeyError), ("value", ValueError), ("zero", ZeroDivisionError)])
def test_errors_come_back_as_they_are(remote, function, kind, error):
    name = f"direct.fail.{kind}"
    with pytest.raises(error, match=f"why {kind}") as found:
        remote.get_function(function(name, _fail))(kind)
    assert isinstance(found.value, ns.TVMError)


def test_arrays_and_programs(remote, function, tmp_path):
    x = np.arange(8, dtype="float32")
    here = ns.nd.array(x, remote.cpu(0))
    doubled = remote.get_function(function("direct.double", lambda a: ns.nd.array(2 * a.numpy())))(here)
    np.testing.assert_array_equal(doubled.numpy(), 2 * x)
    with pytest.raises(TypeError, match="of the session"):
        remote.get_function("direct.double")(ns.nd.array(x))
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] + 1, name="B")
    program = ns.build(te.create_schedule(b.op), [a, b], "llvm", name="add")
    program.export_library(tmp_path / "add.tar")
    remote.upload(tmp_path / "add.tar")
    f, out = remote.load_module("add.tar"), ns.nd.empty((8,), device=remote.cpu(0))
    f(doubled, out)
    np.testing.assert_array_equal(out.numpy(), 2 * x + 1)
    (tmp_path / "linked.so").write_bytes(remote.download_linked_module("add.tar"))
    out = ns.nd.empty((8,))
    ns.runtime.load_module(tmp_path / "linked.so")(ns.nd.array(x), out)
    np.testing.assert_array_equal(out.numpy(), x + 1)
    with pytest.raises(AttributeError):
        remote.system_lib()["nothing"]


def test_sessions_end(served, function):
    session = rpc.connect("127.0.0.1", served.port, key="x1", session_timeout=0.5)
    f = session.get_function(function("direct.one", lambda: 1))
    assert f() == 1
    time.sleep(0.6)
    with pytest.raises(rpc.RPCSessionTimeoutError):
        f()
    with pytest.raises(rpc.RPCError, match="key is 'x1', not 'y'"):
        rpc.connect("127.0.0.1", served.port, key="y")
    with pytest.raises(rpc.RPCError, match="no session constructor 'rpc.Popen'"):
        rpc.connect("127.0.0.1", served.port, key="x1", session_constructor_args=["rpc.Popen", "x", 1])
    session = rpc.connect("127.0.0.1", served.port, key="x1")
    served.terminate()
    with pytest.raises(rpc.RPCError, match="gone"):
        session.listdir()
    with pytest.raises(rpc.RPCError, match="cannot connect"):
        rpc.connect("127.0.0.1", served.port, key="x1")


def test_one_server_leads_to_another(served, function):
    with_other = rpc.Server(key="x2")
    session = rpc.connect("127.0.0.1", served.port, "x1", session_constructor_args=["rpc.Connect", "127.0.0.1", with_other.port, "x2", False])
    assert session.get_function(function("direct.two", lambda: 2))() == 2
    np.testing.assert_array_equal(ns.nd.array([1, 2], session.cpu(0)).numpy(), [1, 2])
    with_other.terminate()
    with pytest.raises(rpc.RPCError):
        session.listdir()


def test_a_proxy_brings_them_together(function):
    proxy = rpc.Proxy()
    behind = rpc.Server(proxy.host, proxy.port, is_proxy=True, key="p")
    for _ in range(2):  # the server comes back after a session
        with rpc.connect(proxy.host, proxy.port, key="p") as session:
            assert session.get_function("testing.echo")(7) == 7
    behind.terminate()
    proxy.terminate()
    with pytest.raises(ValueError, match="register with it themselves"):
        rpc.Proxy(tracker_addr=("127.0.0.1", 9190))


def test_strangers_get_nothing(served, monkeypatch):
    """Another user, nonsense, a message that is too long: the connection is closed, and the server goes on."""
    for first in (b"GET / HTTP/1.0\r\n\r\n", struct.pack("<IQ", wire.FIRST + 1, 0), struct.pack("<IQ", 2, 0) + b"[]",
                  struct.pack("<IQ", 3, 0) + b"\xff{}"):  # fmt: skip
        with socket.create_connection(("127.0.0.1", served.port)) as s:
            s.settimeout(10)
            s.sendall(first)
            with contextlib.suppress(ConnectionResetError):
                assert s.recv(100) == b""
    monkeypatch.setattr(wire, "is_own", lambda peer, own: False)
    with pytest.raises(rpc.RPCError, match="cannot connect"):
        rpc.connect("127.0.0.1", served.port, key="x1")
    monkeypatch.undo()
    rpc.connect("127.0.0.1", served.port, key="x1").close()
    assert served._listener._socket.getsockname()[0] == "127.0.0.1"  # without TLS nobody else is listened to


def test_certificates(tmp_path):
    make_tls(tmp_path / "team")
    make_tls(tmp_path / "others")
    safe = rpc.Server("127.0.0.1", tls_dir=tmp_path / "team")
    with rpc.connect("127.0.0.1", safe.port, tls_dir=tmp_path / "team") as session:
        assert session.get_function("testing.echo")("x") == "x"
    for other in (None, tmp_path / "others"):
        with pytest.raises(rpc.RPCError):
            rpc.connect("127.0.0.1", safe.port, tls_dir=other)
    safe.terminate()


def test_local_functions(function):
    with rpc.LocalSession() as session:
        assert session.get_function(function("direct.three", lambda: 3))() == 3
        session.upload(b"content", "file")
        assert session.get_function("tvm.rpc.server.download")("file") == b"content"


def test_keys():
    key = base.random_key("127.0.0.1:5555", cmap={"x"})
    assert base.split_random_key(key)[0] == "127.0.0.1:5555" and base.random_key("a") != base.random_key("a")
    assert server._server_env([]).listdir() == []


def test_trackers_and_boards_as_objects():
    tracker = Tracker(port=9300, port_end=9400)
    with pytest.raises(rpc.RPCError, match="custom_addr is 'no.such.host.invalid'"):
        rpc.Server(tracker_addr=(tracker.host, tracker.port), key="k", custom_addr="no.such.host.invalid")
    board = rpc.Server(port=9300, port_end=9400, tracker_addr=(tracker.host, tracker.port), key="k")
    client = rpc.connect_tracker(tracker.host, tracker.port)
    assert client.summary()["queue_info"]["k"]["free"] == 1
    with client.request("k") as session:
        np.testing.assert_array_equal(ns.nd.array([1, 2], session.cpu(0)).numpy(), [1, 2])
    client.close()
    board.terminate()
    tracker.terminate()
