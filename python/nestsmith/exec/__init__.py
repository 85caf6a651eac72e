"""Programs of the package that run as processes of their own."""
