"""Devices of many machines: a tracker that lends them, servers that hold them, clients that use them.

From the ground up: `settings` (options, environment, TLS), `engine` (the one place that imports Dask), `ledger` (who has which
device; knows nothing of networks), `tracker` (a Dask scheduler with the ledger as its plugin), `runner` (the process in which a
session's programs run), `board` (a Dask worker that lends a device), `server` (its nanny), `client` (leases from the user's side),
`measuring` (batches of candidates on leased devices).
"""
