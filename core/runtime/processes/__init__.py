"""Several processes that run one program: finding each other, connecting, exchanging data."""
