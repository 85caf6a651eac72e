"""Whose process is at the other end of a connection of this machine, as the kernel's tables of connections tell it.

Without TLS a tracker and its servers listen on the loopback address, which every user of the machine can reach; whoever talks to a
server runs programs with the rights of its user.
"""

from __future__ import annotations

import ipaddress
import os
import sys

__all__ = ["is_own", "owner_of"]

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")


def _hex(host, port):
    """An address as the tables write it: words of four bytes in the machine's order."""
    raw = ipaddress.ip_address(host.strip("[]")).packed
    words = [int.from_bytes(raw[k : k + 4], sys.byteorder) for k in range(0, len(raw), 4)]
    return "".join(f"{w:08X}" for w in words) + f":{port:04X}"


def owner_of(peer, own):
    """The user number of the process that holds the peer's end of a connection, or None if there is no such connection now.

    Parameters
    ----------
    peer, own : (str, int)
        Addresses and ports of both ends.

    Raises
    ------
    OSError
        If the system has no such tables.
    """
    missing = 0
    for table, prefix in zip(_TABLES, ("", "0000000000000000FFFF0000" if sys.byteorder == "little" else "00000000000000000000FFFF")):
        there, here = _hex(*peer), _hex(*own)
        if table.endswith("6") and len(there) < 20:
            there, here = prefix + there, prefix + here
        try:
            with open(table, encoding="ascii") as f:
                rows = [line.split() for line in f]
        except OSError:
            missing += 1
            if missing == len(_TABLES):
                raise
            continue
        for row in rows:
            if row[1:3] == [there, here]:
                return int(row[7])
    return None


def is_own(peer, own):
    """Whether the process at the other end is of this process's user, or root's. Where the system does not tell, every one is."""
    try:
        return owner_of(peer, own) in (os.getuid(), 0)
    except OSError:
        return True
