"""Sessions from a tracker."""

from .. import check
from ..cluster.client import Client, DeviceLost
from ..cluster.display import summary_text
from ..error import RPCError
from .server import Tracker, connect
from .session import RPCSession

__all__ = ["Tracker", "TrackerSession", "check_remote", "connect", "connect_tracker", "request_remote"]


class _Leased:
    """The link of a session on a device that was lent."""

    def __init__(self, lease, client, limit):
        self.lease, self._client = lease, client
        self.limit = limit

    def ask(self, request, data, limit):
        reply = self.lease.ask({"do": "ask", "request": request, "data": data, "limit": limit or 0}, limit or self.limit or 86400.0)
        return reply["reply"], reply["data"]

    def close(self):
        self.lease.release()
        if self._client is not None:
            self._client.close()

    def abandon(self):
        self.lease.abandon()
        if self._client is not None:
            self._client.abandon()


class TrackerSession:
    """A tracker, as long as it is there.

    Parameters
    ----------
    host, port : str, int, optional
        As `connect_tracker`.
    tls_dir : str, optional
        Directory with ca.pem, cert.pem, key.pem; NESTSMITH_TLS_DIR without it.
    """

    def __init__(self, host=None, port=None, tls_dir=None):
        self._client = Client(host, port, tls_dir)
        self._client.summary()

    def __repr__(self):
        return f"TrackerSession({self._client.host}:{self._client.port})"

    def close(self):
        """Ends the connection, and all sessions that came from it."""
        self._client.close()

    def summary(self):
        """A dict: "server_info", "queue_info", "devices"."""
        return self._client.summary()

    def text_summary(self):
        """The tables of `query_rpc_tracker`."""
        return summary_text(self.summary())

    def request(self, key, priority=1, session_timeout=0, max_retry=5, session_constructor_args=None, wait_limit=None):
        """A session on a device of a key; waits until one is free.

        Parameters
        ----------
        key : str
        priority : int
            Larger is served first.
        session_timeout : float
            Seconds after which the session ends; 0: none.
        max_retry : int
            How often another device is tried if one is lost while the session begins.
        session_constructor_args : list, optional
            Accepted where it is empty; there are no other kinds of sessions.
        wait_limit : float, optional
            Seconds to wait while no device has the key; default 60.

        Returns
        -------
        RPCSession

        Raises
        ------
        ClusterError
            If no device has the key, or the tracker is lost. The message names key, tracker and the last event.
        """
        if session_constructor_args:
            raise ValueError(f"session_constructor_args is {session_constructor_args!r}; there are only plain sessions")
        check.integer("max_retry", max_retry, 0)
        return _request(self._client, None, key, priority, session_timeout, max_retry, wait_limit)

    def request_and_run(self, key, func, priority=1, session_timeout=0, max_retry=2):
        """``func(session)`` on a device; once more on another one if the device is lost, up to `max_retry` times."""
        for k in range(check.integer("max_retry", max_retry, 1)):
            with self.request(key, priority, session_timeout, max_retry) as remote:
                try:
                    return func(remote)
                except DeviceLost:
                    if k + 1 == max_retry:
                        raise
        raise AssertionError("unreachable")


def _request(client, own, key, priority, timeout, tries, wait_limit=None):
    limit = check.number("session_timeout", timeout, -1) or 0
    for k in range(tries + 1):
        lease = client.acquire(key, priority, wait_limit=wait_limit)
        try:
            facts = lease.ask({"do": "open", "limit": limit}, 90.0)["facts"]
        except BaseException as e:
            lease.release()
            if isinstance(e, DeviceLost) and k < tries:
                continue
            raise
        return RPCSession(_Leased(lease, own, limit), facts["hello"], f"{key} at {lease.address.split('://')[1]}")
    raise AssertionError("unreachable")


def connect_tracker(url=None, port=None, tls_dir=None):
    """A `TrackerSession`. Without an address NESTSMITH_TRACKER_HOST and _PORT, then TVM_TRACKER_HOST and _PORT, then 127.0.0.1:9190."""
    return TrackerSession(url, port, tls_dir)


def request_remote(device_key, host=None, port=None, priority=1, timeout=60, tls_dir=None):
    """A session on a device of a tracker.

    Parameters
    ----------
    device_key : str
    host, port : optional
        As `connect_tracker`.
    priority : int
        Larger is served first.
    timeout : float
        Seconds that the session may last.
    tls_dir : str, optional

    Returns
    -------
    RPCSession
    """
    client = Client(host, port, tls_dir)
    try:
        return _request(client, client, device_key, priority, timeout, 5)
    except BaseException:
        client.close()
        raise


def check_remote(target, device_key, host=None, port=None, priority=100, timeout=10):
    """Is there a device of a target's kind under a key?

    Parameters
    ----------
    target : Target or str
    device_key, host, port, priority
        As of `request_remote`.
    timeout : float
        Seconds to wait while no device has the key. Where all of them are busy, it takes until one is free.

    Returns
    -------
    bool
        Raises RPCError where there is no tracker.
    """
    tracker = connect_tracker(host, port)
    try:
        with tracker.request(device_key, priority, wait_limit=timeout) as remote:
            return remote.device(str(target), 0).exist
    except RPCError:
        return False
    finally:
        tracker.close()
