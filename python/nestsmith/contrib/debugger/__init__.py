"""Looking into networks: `debug_executor` runs them node by node."""
