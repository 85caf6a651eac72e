"""What becomes of trackers, servers and clients that are killed, stopped or late: 3 servers, 2 keys, 2 clients."""

import collections
import contextlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from fleet import (
    CLIENT,
    OLDER,
    STILL,
    SWIFT,
    Fleet,
    Link,
    Process,
    Witness,
    board,
    certificates,
    client,
    counts,
    descendants,
    remote_matmul,
)

import nestsmith
from helpers import PATIENCE, runs, wait_until
from nestsmith import auto_scheduler, rpc
from nestsmith.cluster import client as client_module, engine
from nestsmith.cluster.engine import LOOP, close_comm, open_comm


@pytest.fixture(scope="module")
def harbour():
    with Fleet() as f:
        yield f


def three_servers(f):
    """Of a fleet, whatever the test before did to them."""
    f.man("a", "a", "b")
    right = wait_until(lambda: (counts(f, "a"), counts(f, "b")) == ((2, 2, 0), (1, 1, 0)))
    assert right, (counts(f, "a"), counts(f, "b"), [(p.key, p.lines, list(p._new.queue)) for p in f.servers])
    return f


@pytest.fixture
def fleet(harbour):
    return three_servers(harbour)


def test_the_numbers_of_the_query_are_right_at_each_step(fleet, closing):
    assert (counts(fleet, "a"), counts(fleet, "b")) == ((2, 2, 0), (1, 1, 0))
    one = closing(client(fleet, "a"))
    two = closing(client(fleet, "a"))
    assert counts(fleet, "a") == (2, 0, 0)
    tracker, got = rpc.connect_tracker("127.0.0.1", fleet.port), {}

    def ask(name, priority):
        got[name] = tracker.request("a", priority=priority)

    waiting = []
    for name, priority in (("patient", 0), ("urgent", 5)):
        waiting.append(threading.Thread(target=ask, args=(name, priority)))
        waiting[-1].start()
        assert wait_until(lambda: counts(fleet, "a") == (2, 0, len(waiting)))
    one.kill()  # a client that dies frees its device
    waiting[1].join(60)
    assert list(got) == ["urgent"] and counts(fleet, "a") == (2, 0, 1)
    got["urgent"].close()
    waiting[0].join(60)
    assert set(got) == {"urgent", "patient"}
    os.kill(two.pid, signal.SIGTERM)
    assert wait_until(lambda: counts(fleet, "a") == (2, 1, 0))
    tracker.close()
    assert wait_until(lambda: counts(fleet, "a") == (2, 2, 0))
    fleet.servers[2].stop()
    assert wait_until(lambda: counts(fleet, "b") == (0, 0, 0))


def test_a_late_server_gets_the_work_that_waits(tmp_path, closing, monkeypatch):
    """At once: where nothing happens because time goes by, its coming is all that tells of it."""
    (tmp_path / "sitecustomize.py").write_text(STILL)
    for name in ("RENEW_SECONDS", "SILENT_SECONDS", "TELL_SECONDS"):
        monkeypatch.setattr(client_module, name, 3600.0)
    fleet, got = closing(Fleet(PYTHONPATH=os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]]))), []

    def ask():
        with rpc.request_remote("late", "127.0.0.1", fleet.port) as remote:
            got.append(remote.listdir())

    t = threading.Thread(target=ask, daemon=True)
    t.start()
    assert wait_until(lambda: counts(fleet, "late") == (0, 0, 1))
    fleet.serve("late")
    t.join(PATIENCE)
    assert got == [[]]


def test_a_board_that_is_killed_comes_back_and_its_programs_end(fleet):
    server = fleet.servers[2]
    with rpc.request_remote("b", "127.0.0.1", fleet.port, timeout=600) as remote:
        remote.upload(b"x", "x")
        below = descendants(server.child.pid)
        os.kill(board(server), signal.SIGKILL)
        with pytest.raises(rpc.RPCError, match=r"key 'b'|lost"):
            while True:
                remote.listdir()
    with rpc.request_remote("b", "127.0.0.1", fleet.port) as remote:
        assert remote.listdir() == []  # a new process, an empty directory
    others = [p for p in below if p not in descendants(server.child.pid)]
    assert wait_until(lambda: not any(runs(p) for p in others))


def test_a_server_that_is_killed_leaves_nothing(fleet):
    server = fleet.servers[2]
    remote = rpc.request_remote("b", "127.0.0.1", fleet.port, timeout=600)
    below = descendants(server.child.pid)
    server.child.kill()  # the nanny alone
    with pytest.raises(rpc.RPCError):
        while True:
            remote.listdir()
    remote.close()
    assert wait_until(lambda: not any(runs(p) for p in below)), [p for p in below if runs(p)]
    assert wait_until(lambda: counts(fleet, "b") == (0, 0, 0))


def test_directories_of_killed_servers_are_removed_by_the_next_one(tmp_path, closing):
    """Those of a server that lives are not, however old they are."""
    fleet = closing(Fleet(TMPDIR=str(tmp_path)))
    first = fleet.serve("a")
    remote = rpc.request_remote("a", "127.0.0.1", fleet.port, timeout=600)
    remote.upload(b"x", "x")
    made = sorted(tmp_path.glob("nestsmith-*"))
    assert [p.name.rsplit("-", 1)[0] for p in made] == ["nestsmith-board", "nestsmith-lease"]

    def next_server(key):
        for path in made:
            if path.exists():
                os.utime(path, (0, 0))
        fleet.serve(key)
        return [path.exists() for path in made]

    assert next_server("b") == [True, True] and remote.listdir() == ["x"]
    below = descendants(first.child.pid)
    first.close()
    with contextlib.suppress(rpc.RPCError):
        remote.close()
    assert wait_until(lambda: not any(runs(p) for p in below))
    assert next_server("c") == [False, False]


def test_a_tracker_that_comes_back_finds_its_servers_and_clients(fleet):
    tracker = rpc.connect_tracker("127.0.0.1", fleet.port)
    held = tracker.request("a")
    fleet.tracker.close()  # kill -9
    with pytest.raises(rpc.RPCError, match="tracker"):
        while True:
            held.listdir()
    later = []
    t = threading.Thread(target=lambda: later.append(tracker.request("b")))  # asked while it is away
    t.start()
    fleet.tracker = fleet.start_tracker(fleet.port)
    for s in fleet.servers:
        s.wait("registered as")
    t.join(120)
    assert later[0].listdir() == []
    tracker.close()
    assert wait_until(lambda: (counts(fleet, "a"), counts(fleet, "b")) == ((2, 2, 0), (1, 1, 0)))


def test_a_server_of_another_version_is_refused_with_both(fleet, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(OLDER)
    path = os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]])
    old = Process("nestsmith.exec.rpc_server", "--host=127.0.0.1", "--port=0", f"--tracker=127.0.0.1:{fleet.port}", "--key=a", PYTHONPATH=path)
    old.wait(rf"error: refused: nestsmith is 0\.0\.9 there and {nestsmith.__version__} at the tracker")
    assert old.child.wait(60) == 1
    assert counts(fleet, "a") == (2, 2, 0)


def test_a_server_may_take_longer_to_start_than_it_may_be_silent(fleet, tmp_path, closing):
    """A slow board that is busy loads its libraries for longer than that."""
    (tmp_path / "sitecustomize.py").write_text("from nestsmith.cluster import server\nserver.LOST_SECONDS = 0.01\n")
    path = os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]])
    slow = closing(Process("nestsmith.exec.rpc_server", "--host=127.0.0.1", "--port=0", f"--tracker=127.0.0.1:{fleet.port}", "--key=slow",
                           PYTHONPATH=path))  # fmt: skip
    slow.wait("registered as slow")


def test_talk_that_makes_no_sense_harms_nobody(fleet):
    """Bytes of strangers: the tracker goes on."""
    rng = random.Random(0)
    for n in (0, 1, 8, 100, 10_000):
        with socket.create_connection(("127.0.0.1", fleet.port)) as s:
            s.sendall(rng.randbytes(n))
    tracker = rpc.connect_tracker("127.0.0.1", fleet.port)
    for message in ({"do": "acquire"}, {"do": "release", "lease": 5}, {"do": "?"}, {}, [], {"do": "acquire", "id": 1, "key": 3, "priority": "x"}):
        other = rpc.connect_tracker("127.0.0.1", fleet.port)
        LOOP.wait(other._client._comm.write(message))
        other.close()
    assert counts(fleet, "a") == (2, 2, 0)
    tracker.close()


def test_a_port_of_another_program_is_named():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            with contextlib.suppress(OSError):  # the end of the test
                while True:
                    with server.accept()[0] as s:
                        s.recv(16)
                        s.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        other, port = threading.Thread(target=answer), server.getsockname()[1]
        other.start()
        with pytest.raises(rpc.RPCError, match=f"{port} answers, but not as expected"):
            rpc.connect_tracker("127.0.0.1", port)
        server.shutdown(socket.SHUT_RDWR)
        other.join()


@pytest.fixture(scope="module")
def swift(tmp_path_factory):
    """A tracker and two servers, which reach it by links, that take whoever is silent for 4 s for lost. This process, too."""
    folder = tmp_path_factory.mktemp("swift")
    (folder / "sitecustomize.py").write_text(SWIFT)
    with Fleet(PYTHONPATH=os.pathsep.join([str(folder), os.environ["PYTHONPATH"]])) as f, pytest.MonkeyPatch.context() as m:
        f.links = [Link(f.port) for _ in range(3)]  # of the server, of this process, of another client
        f.serve("a", port=f.links[0].port)
        for name in ("RENEW_SECONDS", "SILENT_SECONDS"):
            m.setattr(client_module, name, 4.0)
        yield f
    for x in f.links:
        x.close()


@pytest.fixture
def quick(swift):
    """The same, once its device is there and free, whatever the test before did."""
    for x in swift.links:
        x.mend()
    for p in (swift.tracker, *swift.servers):
        p.child.send_signal(signal.SIGCONT)
    assert wait_until(lambda: counts(swift, "a") == (1, 1, 0))
    return swift


def ask_until_lost(remote, why):
    with pytest.raises(rpc.RPCError, match=why):
        while True:
            remote.listdir()


def test_a_client_that_is_stopped_loses_its_device_and_hears_it_when_it_goes_on(quick, closing):
    p = closing(client(quick, "a"))
    p.send_signal(signal.SIGSTOP)
    with rpc.request_remote("a", "127.0.0.1", quick.port) as remote:  # waits until it is taken back
        p.send_signal(signal.SIGCONT)
        assert re.search("was not renewed for 4 s.*|went away|has ended|closed", p.stdout.readline())
        remote.upload(b"x", "x")
        assert remote.listdir() == ["x"]


def test_a_device_that_gives_no_answer_in_time_is_lost_for_that(quick, closing):
    """It is reached; an answer within 0 s nobody gives."""
    lease = closing(client_module.Client("127.0.0.1", quick.port)).acquire("a")
    with pytest.raises(client_module.DeviceLost, match="gave no answer within 0 s"):
        LOOP.wait(lease._ask({"do": "anything"}, 0))


def test_a_client_whose_link_is_cut_loses_its_device_to_the_next(quick, closing):
    p = closing(client(quick, "a", quick.links[2].port))
    quick.links[2].cut()
    with rpc.request_remote("a", "127.0.0.1", quick.port) as remote:
        assert remote.listdir() == []
        assert p.stdout.readline()  # it says why: its device or its tracker is gone
        assert remote.listdir() == []


def test_a_tracker_behind_a_cut_link_is_given_up_and_found_again(quick):
    tracker = rpc.connect_tracker("127.0.0.1", quick.links[1].port)
    held, later = tracker.request("a"), []
    quick.links[1].cut()
    ask_until_lost(held, "tracker|not renewed|has ended|closed")
    t = threading.Thread(target=lambda: later.append(tracker.request("a")))
    t.start()
    quick.links[1].mend()
    t.join(120)
    assert later[0].listdir() == []
    tracker.close()


def test_a_tracker_that_is_stopped_is_given_up_and_found_again(quick):
    tracker = rpc.connect_tracker("127.0.0.1", quick.port)
    held, later = tracker.request("a"), []
    os.kill(quick.tracker.child.pid, signal.SIGSTOP)
    ask_until_lost(held, "tracker|went away")  # its server gives up, too
    with pytest.raises(rpc.RPCError, match="is reached and says nothing; its process is stopped"):
        LOOP.wait(open_comm(f"tcp://127.0.0.1:{quick.port}", None, 0.5, 0.5))
    t = threading.Thread(target=lambda: later.append(tracker.request("a")))
    t.start()
    os.kill(quick.tracker.child.pid, signal.SIGCONT)
    t.join(120)
    assert later[0].listdir() == []
    tracker.close()


def test_a_tracker_that_is_slow_to_answer_has_more_time_than_one_that_is_not_reached(monkeypatch, closing):
    fleet, asked, is_reached = closing(Fleet()), threading.Event(), engine._is_reached

    def then_tell(address):
        is_reached(address)
        asked.set()

    monkeypatch.setattr(engine, "_is_reached", then_tell)
    assert counts(fleet, "a") == (0, 0, 0)
    pid = fleet.tracker.child.pid
    os.kill(pid, signal.SIGSTOP)  # its machine accepts connections, it does nothing
    assert wait_until(lambda: open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] == "T")
    slow = LOOP.start(open_comm(f"tcp://127.0.0.1:{fleet.port}", None, 0.1, PATIENCE))
    assert asked.wait(PATIENCE)  # the time to reach it is over
    os.kill(pid, signal.SIGCONT)
    LOOP.wait(close_comm(slow.result(PATIENCE)))
    with socket.socket() as deaf:  # nobody else can listen there
        deaf.bind(("127.0.0.1", 0))
        there = f"127.0.0.1:{deaf.getsockname()[1]}"
        with pytest.raises(rpc.RPCError, match=f"nobody answers at {there}"):
            LOOP.wait(open_comm(f"tcp://{there}", None, 0.1, 3600.0))


def test_a_server_whose_link_is_cut_is_lost_and_comes_back(quick):
    held = rpc.request_remote("a", "127.0.0.1", quick.port, timeout=600)
    quick.links[0].cut()
    ask_until_lost(held, "key 'a'|lost")
    assert wait_until(lambda: counts(quick, "a")[0] == 0)
    quick.links[0].mend()
    with rpc.request_remote("a", "127.0.0.1", quick.port) as remote:
        assert remote.listdir() == []


def test_a_nanny_that_is_stopped_stops_nothing(quick):
    server = quick.servers[0]
    held = rpc.request_remote("a", "127.0.0.1", quick.port, timeout=600)
    server.child.send_signal(signal.SIGSTOP)
    held.upload(b"x", "x")
    assert held.listdir() == ["x"]
    os.kill(board(server), signal.SIGKILL)
    ask_until_lost(held, "key 'a'|lost")
    server.child.send_signal(signal.SIGCONT)  # now it notices
    with rpc.request_remote("a", "127.0.0.1", quick.port) as remote:
        assert remote.listdir() == []


FAULTS = {
    "board": lambda f, rng: harm(f, rng, signal.SIGKILL),
    "board stops": lambda f, rng: harm(f, rng, signal.SIGSTOP),
    "server": lambda f, rng: replace(f, rng),
    "nanny": lambda f, rng: replace(f, rng, nanny_alone=True),
    "nanny stops": lambda f, rng: pause(f, rng, rng.choice(f.servers).child.pid),
    "client": lambda f, rng: visit(f, rng, signal.SIGKILL),
    "client stops": lambda f, rng: visit(f, rng, signal.SIGSTOP),
    "tracker": lambda f, rng: again(f),
    "tracker stops": lambda f, rng: pause(f, rng, f.tracker.child.pid),
    "link": lambda f, rng: cut(f, rng),
    "older server": lambda f, rng: refused_server(f),
    "expired": lambda f, rng: refused_client(f, "expired"),
    "stranger": lambda f, rng: refused_client(f, "stranger"),
}


def harm(fleet, rng, how):
    try:
        pid = board(rng.choice(fleet.servers))
    except AssertionError:
        return  # it is just being started again
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, how)
        if how == signal.SIGSTOP:
            time.sleep(rng.random())
            os.kill(pid, signal.SIGCONT)


def pause(fleet, rng, pid):
    os.kill(pid, signal.SIGSTOP)
    time.sleep(rng.random() * 2)
    os.kill(pid, signal.SIGCONT)


def replace(fleet, rng, nanny_alone=False):
    gone = fleet.servers.pop(rng.randrange(len(fleet.servers)))
    if nanny_alone:
        below = descendants(gone.child.pid)
        gone.child.kill()
        assert wait_until(lambda: not any(runs(p) for p in below))
    gone.close()
    fleet.serve(rng.choice("ab") if {"a", "b"} <= {s.key for s in fleet.servers} else gone.key, device=gone.device)


def visit(fleet, rng, how):
    p = subprocess.Popen([sys.executable, "-c", CLIENT, str(fleet.port), "b"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(rng.random() * 3)
    p.send_signal(how)
    if how == signal.SIGSTOP:
        time.sleep(rng.random())
        p.kill()
    p.wait()


def again(fleet):
    fleet.tracker.close()
    fleet.tracker = fleet.start_tracker(fleet.port)
    fleet.tracker.wait("bind to")


def cut(fleet, rng):
    fleet.link.cut()
    time.sleep(rng.random() * 2)
    fleet.link.mend()


def refused_server(fleet):
    old = Process("nestsmith.exec.rpc_server", "--host=127.0.0.1", "--port=0", f"--tracker=127.0.0.1:{fleet.port}", "--key=a",
                  *fleet.options, PYTHONPATH=fleet.older)  # fmt: skip
    old.wait("error: refused: nestsmith is 0.0.9 there")
    old.close()


def refused_client(fleet, who):
    with pytest.raises(rpc.RPCError, match="cannot connect"):
        rpc.connect_tracker("127.0.0.1", fleet.port, tls_dir=fleet.folders / who)


def test_the_witness_sees_a_device_in_two_hands(tmp_path):
    """One device behind two servers: two clients get it at the same time."""
    witness = Witness(tmp_path)
    fleet = Fleet(**witness.environment)
    for _ in range(2):
        fleet.serve("a", device="shared")
    try:
        task = auto_scheduler.SearchTask(func=remote_matmul, args=(16,), target="llvm")
        inputs = [auto_scheduler.MeasureInput(task, task.compute_dag.init_state)] * 2
        built = auto_scheduler.LocalBuilder(n_parallel=1).build(inputs, 0)
        runners = [auto_scheduler.RPCRunner("a", "127.0.0.1", fleet.port, min_repeat_ms=1) for _ in range(2)]
        assert [r.error_no for runner in runners for r in runner.run(inputs, built, 0)] == [0] * 4  # both keep their device a while
        for runner in runners:
            runner.close()
        with pytest.raises(AssertionError, match="twice"):
            witness.check()
    finally:
        fleet.close()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """Three servers behind certificates. One client reaches the tracker by a link."""
    folders, older = certificates(tmp_path_factory.mktemp("tls")), tmp_path_factory.mktemp("older")
    (older / "sitecustomize.py").write_text(OLDER)
    witness = Witness(tmp_path_factory.mktemp("witness"))
    with Fleet("--tls-dir", str(folders / "team"), **witness.environment) as f, pytest.MonkeyPatch.context() as m:
        f.witness = witness
        f.link, f.folders, f.older = Link(f.port), folders, os.pathsep.join([str(older), os.environ["PYTHONPATH"]])
        m.setenv("NESTSMITH_TLS_DIR", str(folders / "team"))
        f.man("a", "a", "b")
        yield f
    f.link.close()


@pytest.fixture
def team(guarded):
    return three_servers(guarded)


@pytest.mark.some(1)
@pytest.mark.parametrize("steps", [
    test_the_numbers_of_the_query_are_right_at_each_step,
    lambda f, _: test_a_board_that_is_killed_comes_back_and_its_programs_end(f),
    lambda f, _: test_a_tracker_that_comes_back_finds_its_servers_and_clients(f),
], ids=["client", "board", "tracker"])  # fmt: skip
def test_the_same_with_certificates(team, closing, steps):
    steps(team, closing)


@pytest.mark.parametrize("faults", [pytest.param(1, marks=pytest.mark.full), pytest.param(500, marks=[pytest.mark.full, pytest.mark.long])])
def test_tuning_survives(team, tmp_path, faults):
    """Faults while two clients tune: every run ends with all its records, each once, and no device is in two hands."""
    fleet = team
    rng, done = random.Random(faults), threading.Event()
    failures, logs, seen = [], [], collections.Counter()

    def tune(key, number):
        task = auto_scheduler.SearchTask(func=remote_matmul, args=(24 + 8 * (key == "b"),), target="llvm")
        log = str(tmp_path / f"{key}{number}.json")
        port = fleet.link.port if key == "b" else fleet.port
        runner = auto_scheduler.RPCRunner(key, "127.0.0.1", port, number % 3, n_parallel=2, min_repeat_ms=1, wait_limit=120)
        policy = auto_scheduler.SketchPolicy(task, verbose=0, params={"sample_init_min_population": 12})
        inputs = [auto_scheduler.MeasureInput(task, s) for s in policy.sample_initial_population()[:12]]
        builder = auto_scheduler.LocalBuilder(n_parallel=1)
        results = runner.run(inputs, builder.build(inputs, 0), 0)
        auto_scheduler.save_records(log, inputs, results)
        logs.append(log)
        runner.close()
        seen.update(r.error_no for r in results)
        assert len(results) == 12 and all(r.error_no in (0, 8) for r in results), results

    def keep_tuning(key):
        number = 0
        while not done.is_set() or number == 0:
            try:
                tune(key, number)
            except BaseException as e:  # noqa: BLE001 - told by the main thread
                failures.append(e)
                return
            number += 1

    threads = [threading.Thread(target=keep_tuning, args=(key,)) for key in "ab"]
    for t in threads:
        t.start()
    kinds = list(FAULTS)
    for k in range(faults):
        what = kinds[k % len(kinds)] if faults > len(kinds) and k < len(kinds) else rng.choice(kinds)  # each at least once in the long run
        if faults > len(kinds):
            print(k, what, file=sys.stderr, flush=True)
        FAULTS[what](fleet, rng)
        if failures:
            break
    done.set()
    for t in threads:
        t.join(600)
    assert not failures and not any(t.is_alive() for t in threads), failures
    for log in logs:
        lines = [json.loads(line) for line in open(log)]
        assert len(lines) == 12 and len({json.dumps(x["i"][1]) for x in lines}) == 12
    assert seen[0] > 0 and fleet.witness.check() > 0
    for s in list(fleet.servers):
        assert s.child.poll() is None
    assert wait_until(lambda: counts(fleet, "a")[:2] == (sum(s.key == "a" for s in fleet.servers),) * 2)
    tracker = rpc.connect_tracker("127.0.0.1", fleet.port)
    devices = tracker.summary()["devices"]
    assert len({d["address"] for d in devices}) == len(devices) == len(fleet.servers)
    tracker.close()
