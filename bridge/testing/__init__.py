"""Help for tests: comparison with tolerances by dtype, checks of derivatives and of rules."""

from tracebridge.core.util.listing import listing as _listing
from tracebridge.testing.compare import assert_allclose as assert_allclose
from tracebridge.testing.compare import default_tolerance as default_tolerance
from tracebridge.testing.grads import check_grads as check_grads
from tracebridge.testing.grads import check_jvp as check_jvp
from tracebridge.testing.grads import check_vjp as check_vjp
from tracebridge.testing.rules import check_rules as check_rules

__all__ = [
    "assert_allclose",
    "check_grads",
    "check_jvp",
    "check_rules",
    "check_vjp",
    "default_tolerance",
]

__dir__ = _listing(globals())
