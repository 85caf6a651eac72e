"""Certificates: with them everything works, without them nothing is reached."""

import contextlib
import io
import os
import shutil
import stat

import pytest
from fleet import Fleet, certificates

from nestsmith import rpc
from nestsmith.cluster import commands
from nestsmith.cluster.settings import Tls, is_loopback, listening_host
from nestsmith.cluster.tls import make_tls


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Directories of the team, of strangers, and of one whose time is over."""
    return certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def fleet(folders):
    with Fleet("--tls-dir", str(folders / "team")) as f:
        f.serve("board")
        yield f


def test_a_member_of_the_team_gets_a_session(fleet, folders):
    with rpc.request_remote("board", "127.0.0.1", fleet.port, tls_dir=folders / "team") as remote:
        remote.upload(b"x", "x")
        assert remote.listdir() == ["x"] and remote._link.lease.address.startswith("tls://")


WHY = {"stranger": "TLS with .* failed: .*(signature failure|issuer|unknown.ca)", "expired": "TLS with .* failed: .*expired", None: "give --tls-dir"}


@pytest.mark.parametrize("who", list(WHY))
def test_others_are_refused_with_the_reason(fleet, folders, who):
    with pytest.raises(rpc.RPCError, match=rf"(?i)cannot connect.*{fleet.port}.*{WHY[who]}"):
        rpc.connect_tracker("127.0.0.1", fleet.port, tls_dir=folders / who if who else None)


@pytest.mark.parametrize("who", list(WHY))
def test_a_server_without_a_valid_certificate_says_why_it_is_not_registered(fleet, folders, who, closing):
    p = closing(Fleet.serve(_Other(fleet, folders / who if who else None), "board", ready=False))
    p.wait(f"(?i)not registered.*{WHY[who]}")


class _Other:
    """The fleet, for a server that has other certificates or none."""

    def __init__(self, fleet, folder):
        self.port, self.environment, self.servers = fleet.port, {}, []
        self.options = ("--tls-dir", str(folder)) if folder else ()


def test_files_are_private_and_never_overwritten(folders):
    for name in ("key.pem", "ca-key.pem"):
        assert stat.S_IMODE(os.stat(folders / "team" / name).st_mode) == 0o600
    with pytest.raises(ValueError, match="cert.pem already"):
        make_tls(folders / "team")
    with pytest.raises(ValueError, match="no cert.pem, key.pem"):
        os.makedirs(folders / "half", exist_ok=True)
        shutil.copy(folders / "team" / "ca.pem", folders / "half")
        Tls(folders / "half")


def test_the_command_makes_them(tmp_path):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert commands.tracker(["--make-tls", str(tmp_path / "made")]) == 0
    assert sorted(os.listdir(tmp_path / "made")) == ["ca-key.pem", "ca.pem", "cert.pem", "key.pem"]
    assert "ca-key.pem here" in out.getvalue()


def test_without_tls_nothing_listens_beyond_this_machine_unless_asked():
    assert listening_host("0.0.0.0", None, False)[0] == "127.0.0.1" and "--insecure" in listening_host("0.0.0.0", None, False)[1]
    assert listening_host("0.0.0.0", None, True)[0] == "0.0.0.0" and "run programs here" in listening_host("0.0.0.0", None, True)[1]
    assert listening_host("127.0.0.1", None, False) == ("127.0.0.1", "") and listening_host("0.0.0.0", object(), False) == ("0.0.0.0", "")
    assert is_loopback("::1") and not is_loopback("10.0.0.1") and not is_loopback("example.org")
