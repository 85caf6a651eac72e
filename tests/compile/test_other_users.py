"""Folders that other users of a machine may reach: nothing of theirs is executed, followed, overwritten or removed."""

import fcntl
import os
import pathlib
import subprocess
import sys
import time

import numpy as np
import pytest

from helpers import full
from nestsmith import _core, auto_scheduler

CPU, NOBODY = "llvm", 65534
OURS, THEIRS = "int ours(void) { return 1; }", "int theirs(void) { return 2; }"
TUNER = _core.Target("llvm", (2, 64, 64, 0, 0, 0, 0, 0))
root = pytest.mark.skipif(os.geteuid() != 0, reason="giving files to another user needs root")


def build(source, cache):
    """(binary, whether it came from the cache) of a source in a fresh process, whose memory knows no program."""
    code = f"""if True:
        import sys
        from nestsmith import _core
        binary, _, cached = _core.build({CPU!r}, {source!r}, 60, {str(cache)!r})
        sys.stdout.buffer.write(bytes([cached]) + binary)"""
    r = subprocess.run([sys.executable, "-c", code], capture_output=True)
    assert r.returncode == 0, r.stderr.decode()
    return r.stdout[1:], bool(r.stdout[0])


@pytest.fixture
def cache(tmp_path):
    """A cache with the entries of two programs: (folder, entry of ours, entry of theirs, our binary)."""
    folder = tmp_path / "cache"
    binary, _ = build(OURS, folder)
    (ours,) = folder.iterdir()
    build(THEIRS, folder)
    (theirs,) = set(folder.iterdir()) - {ours}
    assert build(OURS, folder) == (binary, True) and b"theirs" not in binary
    return folder, ours, theirs, binary


def plant(ours, theirs, how):
    """Their program under the name of ours."""
    ours.unlink()
    if how == "link":
        ours.symlink_to(theirs)
    elif how == "fifo":
        os.mkfifo(ours)
    else:
        ours.write_bytes(theirs.read_bytes())
    if how == "another user's":
        os.chown(ours, NOBODY, NOBODY)
    elif how == "writable":
        ours.chmod(0o666)
    elif how == "group":
        ours.chmod(0o660)


@pytest.mark.some(2)
@pytest.mark.parametrize("how", ["renamed", "link", "fifo", "writable", full("group"), pytest.param("another user's", marks=root)])
def test_planted_programs_are_not_taken(cache, how):
    folder, ours, theirs, binary = cache
    plant(ours, theirs, how)
    assert build(OURS, folder) == (binary, False)
    assert build(OURS, folder) == (binary, True), "the planted file has made room"
    assert theirs.exists()


@pytest.mark.some(1)
@pytest.mark.parametrize("mode", [full(0o777), 0o775, full(0o1777), pytest.param(None, marks=root)])
def test_folders_of_others_are_not_used(cache, mode):
    """None: the folder belongs to another user."""
    folder, ours, theirs, binary = cache
    plant(ours, theirs, "renamed")
    before = ours.read_bytes()
    if mode is None:
        os.chown(folder, NOBODY, NOBODY)
    else:
        folder.chmod(mode)
    build("int new(void) { return 3; }", folder)
    assert build(OURS, folder) == (binary, False) == build(OURS, folder)
    assert sorted(folder.iterdir()) == sorted([ours, theirs]) and ours.read_bytes() == before


def test_a_folder_may_be_a_link_to_one_of_ours(cache, tmp_path):
    folder, _, _, binary = cache
    (tmp_path / "link").symlink_to(folder)
    assert build(OURS, tmp_path / "link") == (binary, True)


def test_what_is_no_entry_is_never_removed(tmp_path, monkeypatch):
    """A folder that holds other things as well: the limit is kept by removing programs only."""
    monkeypatch.setenv("NESTSMITH_CACHE_MB", "1")
    cc = tmp_path / "cc"
    cc.write_text('#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done; echo program > "$2"\n')
    cc.chmod(0o755)
    folder = tmp_path / "home"
    folder.mkdir(0o700)
    notes, old = folder / "notes.txt", folder / ("0" * 32 + ".so")
    for f in (notes, old):
        f.write_bytes(bytes(2 << 20))
        os.utime(f, (1, 1))
    for k in range(2000):  # one put in 64 looks at the size
        _core.build(CPU, f"int k{k};", 60, str(folder), str(cc))
        if not old.exists():
            break
    assert not old.exists() and notes.exists()


# ---- temporary folders ----


def compile_in(tmp, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp))
    return _core.build(CPU, f"int x{time.monotonic_ns()};", 60, "")[0]


@pytest.mark.parametrize("how", ["writable", "group", "link", "file", pytest.param("another user's", marks=root)])
def test_a_temporary_folder_that_others_reach_is_refused(how, tmp_path, monkeypatch):
    base = tmp_path / f"nestsmith-{os.geteuid()}"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(0o700)
    if how == "link":
        base.symlink_to(elsewhere)
    elif how == "file":
        base.touch()
    else:
        base.mkdir(0o700)
        if how == "another user's":
            os.chown(base, NOBODY, NOBODY)
        else:
            base.chmod(0o777 if how == "writable" else 0o770)
    with pytest.raises(OSError, match="is not a directory of this user that nobody else may write; remove it or set TMPDIR"):
        compile_in(tmp_path, monkeypatch)
    assert list(elsewhere.iterdir()) == []
    base.rmdir() if base.is_dir() and not base.is_symlink() else base.unlink()
    assert len(compile_in(tmp_path, monkeypatch)) > 100 and list(base.iterdir()) == []


def test_sweeping_follows_no_links(tmp_path, monkeypatch):
    """What a dead process left is removed; a link under such a name is not gone through."""
    base, kept = tmp_path / f"nestsmith-{os.geteuid()}", tmp_path / "kept"
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True).stdout.strip()
    left = base / f"{dead}-left"
    (left / "deep").mkdir(parents=True)
    base.chmod(0o700)
    kept.mkdir()
    (kept / "file").touch()
    (left / "deep" / "link").symlink_to(kept)
    link = base / f"{dead}-link"
    link.symlink_to(kept)
    for p in (left, kept, link):
        os.utime(p, (1, 1), follow_symlinks=False)
    compile_in(tmp_path, monkeypatch)
    assert not left.exists() and (kept / "file").exists()


# ---- locks: all users share these ----


def lock():
    """Takes the CPU and gives it back."""
    _core.Session(TUNER, 1, lock=2).close()


@pytest.fixture
def locks(tmp_path, monkeypatch):
    folder = tmp_path / "locks"
    monkeypatch.setenv("NESTSMITH_LOCK_DIR", str(folder))
    lock()
    return folder


@pytest.mark.parametrize("how", ["link", "hard link", "fifo", "folder"])
@pytest.mark.parametrize("which", ["cpu-0.lock", "cpu-0.next"])
def test_locks_write_to_nothing_else(how, which, locks, tmp_path):
    treasure, f = tmp_path / "treasure", locks / which
    treasure.write_text("treasure")
    treasure.chmod(0o600)
    f.unlink()
    if how == "link":
        f.symlink_to(treasure)
    elif how == "hard link":
        f.hardlink_to(treasure)
    elif how == "fifo":
        os.mkfifo(f)
    else:
        f.mkdir()
    if which == "cpu-0.lock":
        with pytest.raises(OSError, match="cannot open the lock of the device.*NESTSMITH_LOCK_DIR"):
            lock()
    else:
        lock()  # without the file of turns nobody queues
    assert treasure.read_text() == "treasure" and treasure.stat().st_mode & 0o777 == 0o600


@root
def test_a_lock_file_of_another_user_is_a_lock(locks):
    """The first user of a machine makes the files, and all others use them."""
    for p in (locks, *locks.iterdir()):
        os.chown(p, NOBODY, NOBODY)
    lock()
    assert (locks.stat().st_mode & 0o7777, (locks / "cpu-0.lock").stat().st_mode & 0o777) == (0o1777, 0o666)


def test_a_holder_cannot_talk_to_the_terminal(locks):
    """Any user may write the text that says who holds a device."""
    with open(locks / "cpu-0.lock", "r+", encoding="utf-8") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        f.write("process 1 of user \x1b]0;jürgen\x07 \u009b31m\n")
        f.flush()
        with pytest.raises(RuntimeError, match="process 1 of user .*jürgen") as caught:
            lock()
    assert not any(ord(c) < 32 or 0x7F <= ord(c) < 0xA0 for c in str(caught.value))


FOLDER = """
set -e
mount -t tmpfs none /tmp
mkdir /tmp/elsewhere
{prepare}
exec {python} -c 'from nestsmith import _core; _core.Session(_core.Target("llvm", (2, 64, 64, 0, 0, 0, 0, 0)), 1, lock=2).close()'
"""


@pytest.mark.parametrize(
    ("prepare", "works"),
    [
        ("", True),
        ("ln -s /tmp/elsewhere /tmp/nestsmith-locks", False),
        ("mkdir -m 777 /tmp/nestsmith-locks; chown 65534 /tmp/nestsmith-locks", False),  # anybody may exchange its files
        ("mkdir -m 777 /tmp/nestsmith-locks", True),  # ours: mended
        ("mkdir -m 1777 /tmp/nestsmith-locks; chown 65534 /tmp/nestsmith-locks", True),
    ],
)
def test_the_folder_that_all_users_share(prepare, works):
    """/tmp/nestsmith-locks, in a /tmp of this test's own."""
    if __file__.startswith("/tmp/") or subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/tmp"], capture_output=True).returncode:
        pytest.skip("making a /tmp of one's own needs root and namespaces")
    env = {k: v for k, v in os.environ.items() if k not in ("NESTSMITH_LOCK_DIR", "TMPDIR")}
    env["PYTHONPATH"] = str(pathlib.Path(auto_scheduler.__file__).parents[2])
    script = FOLDER.format(prepare=prepare, python=sys.executable)
    r = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, env=env)
    assert (r.returncode == 0) == works, r.stderr
    assert works or "NESTSMITH_LOCK_DIR" in r.stderr


def test_a_model_file_is_written_through_no_link(tmp_path):
    """The name under which a model is written before it is renamed can be guessed."""
    treasure, path = tmp_path / "treasure", tmp_path / "model.acm"
    treasure.write_text("treasure")
    (tmp_path / f"model.acm.{os.getpid()}.tmp").symlink_to(treasure)
    leaf = np.array([-1], np.int32)  # one tree of one leaf
    _core.Forest.from_nodes(np.zeros(1, np.int32), leaf, np.ones(1, np.float32), np.zeros(1, np.int32), 4).save(str(path))
    assert treasure.read_text() == "treasure" and path.stat().st_size > 0
