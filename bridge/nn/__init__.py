"""Functions of neural networks: activations, normalisation, attention, initial weights.

>>> import tracebridge as tb
>>> tb.nn.relu(tb.numpy.array([-1.0, 2.0])).tolist()
[0.0, 2.0]
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracebridge._lazy_names import LazyNames as _LazyNames
from tracebridge.core.errors.filtering import publish as _publish
from tracebridge.nn.activations import (
    celu,
    elu,
    gelu,
    glu,
    hard_sigmoid,
    hard_silu,
    hard_swish,
    hard_tanh,
    identity,
    leaky_relu,
    log1mexp,
    log_sigmoid,
    mish,
    relu,
    relu6,
    selu,
    sigmoid,
    silu,
    soft_sign,
    softplus,
    sparse_plus,
    sparse_sigmoid,
    squareplus,
    swish,
)
from tracebridge.nn.attention import dot_product_attention
from tracebridge.nn.normalization import (
    log_softmax,
    logmeanexp,
    logsumexp,
    one_hot,
    softmax,
    standardize,
)
from tracebridge.numpy import tanh

if TYPE_CHECKING:
    from tracebridge.nn import initializers as initializers
    from tracebridge.nn.scaled import (
        get_scaled_dot_general_config,
        scaled_dot_general,
        scaled_matmul,
    )

_LATER = _LazyNames(
    __name__,
    {
        "tracebridge.nn.scaled": ("get_scaled_dot_general_config scaled_dot_general scaled_matmul"),
    },
    submodules=("initializers",),
)

__all__ = [
    "celu",
    "dot_product_attention",
    "elu",
    "gelu",
    "get_scaled_dot_general_config",
    "glu",
    "hard_sigmoid",
    "hard_silu",
    "hard_swish",
    "hard_tanh",
    "identity",
    "initializers",
    "leaky_relu",
    "log1mexp",
    "log_sigmoid",
    "log_softmax",
    "logmeanexp",
    "logsumexp",
    "mish",
    "one_hot",
    "relu",
    "relu6",
    "scaled_dot_general",
    "scaled_matmul",
    "selu",
    "sigmoid",
    "silu",
    "soft_sign",
    "softmax",
    "softplus",
    "sparse_plus",
    "sparse_sigmoid",
    "squareplus",
    "standardize",
    "swish",
    "tanh",
]

_publish(globals(), __name__)


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:  # a type checker knows the names above

    def __getattr__(name: str) -> object:
        return _LATER.load(globals(), name)
