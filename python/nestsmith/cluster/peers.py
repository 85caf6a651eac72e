"""Whose process is at the other end of a connection of this machine, as the kernel's tables of connections tell it.

Without TLS a tracker and its servers listen on the loopback address, which every user of the machine can reach; whoever talks to a
server runs programs with the rights of its user.
"""

import ipaddress
import os
import sys

__all__ = ["are_own", "is_own", "owner_of", "owners"]

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_MAPPED = "0000000000000000FFFF0000" if sys.byteorder == "little" else "00000000000000000000FFFF"  # before an IPv4 address


def _hex(host, port):
    """An address as the tables write it: words of four bytes in the machine's order."""
    raw = ipaddress.ip_address(host.strip("[]")).packed
    words = [int.from_bytes(raw[k : k + 4], sys.byteorder) for k in range(0, len(raw), 4)]
    return "".join(f"{w:08X}" for w in words) + f":{port:04X}"


def owners(pairs):
    """The user numbers of the processes that hold the peers' ends of connections; None where there is no such connection now.

    Parameters
    ----------
    pairs : list of (peer, own)
        Addresses and ports, (str, int), of both ends of each. The tables are read once for all.

    Raises
    ------
    OSError
        If the system has no such tables.
    """
    wanted, found, missing = {}, [None] * len(pairs), 0
    for k, (peer, own) in enumerate(pairs):
        there, here = _hex(*peer), _hex(*own)
        wanted[there, here] = k
        if len(there) < 20:  # as the other table writes it
            wanted[_MAPPED + there, _MAPPED + here] = k
    for table in _TABLES:
        try:
            with open(table, encoding="ascii") as f:
                for line in f:
                    row = line.split(None, 8)
                    k = wanted.get((row[1], row[2]))
                    if k is not None:
                        found[k] = int(row[7])
        except OSError:
            missing += 1
    if missing == len(_TABLES):
        raise OSError(f"the system has none of {', '.join(_TABLES)}")
    return found


def owner_of(peer, own):
    """`owners` of one connection."""
    return owners([(peer, own)])[0]


def are_own(pairs):
    """For each connection whether the process at the other end is of this process's user, or root's. Where the system does not tell,
    every one is."""
    try:
        return [owner in (os.getuid(), 0) for owner in owners(pairs)]
    except OSError:
        return [True] * len(pairs)


def is_own(peer, own):
    """`are_own` of one connection."""
    return are_own([(peer, own)])[0]
