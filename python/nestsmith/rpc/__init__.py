"""Sessions on other machines: files, arrays, compiled programs and networks on a device that a tracker lends.

>>> remote = nestsmith.rpc.connect_tracker("192.168.1.2", 9190).request("rk3399")
>>> remote.upload("net.so")
>>> module = graph_executor.GraphModule(remote.load_module("net.so")["default"](remote.cl(0)))
"""

from ..error import RPCError, RPCSessionTimeoutError
from . import base, proxy, server
from .proxy import Proxy
from .server import Server
from .session import LocalSession, RPCSession
from .tracker import TrackerSession, check_remote, connect, connect_tracker, request_remote

__all__ = ["Proxy", "Server", "LocalSession", "RPCError", "RPCSession", "RPCSessionTimeoutError", "TrackerSession",
           "check_remote", "connect", "connect_tracker", "request_remote"]
