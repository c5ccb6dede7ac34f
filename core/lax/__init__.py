"""First-order primitives and the functions that bind them; one file = a handful of kin.

What a file's ``__all__`` names is for users: ``tracebridge.lax`` passes it on. Operations that are
imported one by one are the engine's own. Helpers of rules (of batch axes, of shapes, of constants)
are no operations, and are imported from their own files.
"""

from types import ModuleType as _ModuleType

from tracebridge.core.lax.ad_util import *
from tracebridge.core.lax.barriers import *
from tracebridge.core.lax.contract.dot import *
from tracebridge.core.lax.contract.precision import *
from tracebridge.core.lax.device_put import *
from tracebridge.core.lax.dtype_of import *
from tracebridge.core.lax.elementwise.accuracy import *
from tracebridge.core.lax.elementwise.arithmetic import *
from tracebridge.core.lax.elementwise.bitwise import *
from tracebridge.core.lax.elementwise.compare import *
from tracebridge.core.lax.elementwise.compare import eq_to as eq_to
from tracebridge.core.lax.elementwise.compare import le_to as le_to
from tracebridge.core.lax.elementwise.compare import lt_to as lt_to
from tracebridge.core.lax.elementwise.complex import *
from tracebridge.core.lax.elementwise.convert import *
from tracebridge.core.lax.elementwise.convert import convert_dtype as convert_dtype
from tracebridge.core.lax.elementwise.convert import copy as copy
from tracebridge.core.lax.elementwise.exp_log import *
from tracebridge.core.lax.elementwise.hyperbolic import *
from tracebridge.core.lax.elementwise.power import *
from tracebridge.core.lax.elementwise.rounding import *
from tracebridge.core.lax.elementwise.select import *
from tracebridge.core.lax.elementwise.trig import *
from tracebridge.core.lax.indexing.dynamic_slice import *
from tracebridge.core.lax.indexing.gather import *
from tracebridge.core.lax.indexing.modes import *
from tracebridge.core.lax.indexing.scatter import *
from tracebridge.core.lax.indexing.scatter_functions import *
from tracebridge.core.lax.indexing.slice import *
from tracebridge.core.lax.layout_constraint import layout_constraint_p as layout_constraint_p
from tracebridge.core.lax.layout_constraint import with_layout_constraint as with_layout_constraint
from tracebridge.core.lax.like import *
from tracebridge.core.lax.reduce.argminmax import *
from tracebridge.core.lax.reduce.cumulative import *
from tracebridge.core.lax.reduce.recurrence import linear_recurrence_p as linear_recurrence_p
from tracebridge.core.lax.reduce.reductions import *
from tracebridge.core.lax.reduce.sort import *
from tracebridge.core.lax.reduce.top_k import *
from tracebridge.core.lax.rng import *
from tracebridge.core.lax.rng import threefry2x32_p as threefry2x32_p
from tracebridge.core.lax.shape.broadcast import *
from tracebridge.core.lax.shape.concatenate import *
from tracebridge.core.lax.shape.iota import *
from tracebridge.core.lax.shape.iota import dimension_size as dimension_size
from tracebridge.core.lax.shape.iota import dimension_size_p as dimension_size_p
from tracebridge.core.lax.shape.iota import iota_of as iota_of
from tracebridge.core.lax.shape.pad import *
from tracebridge.core.lax.shape.reshape import *
from tracebridge.core.lax.shape.rev import *
from tracebridge.core.lax.shape.roll import *
from tracebridge.core.lax.shape.split import *
from tracebridge.core.lax.shape.stack import *
from tracebridge.core.lax.shape.transpose import *
from tracebridge.core.lax.sharding_constraint import *
from tracebridge.core.lax.special.erf import *
from tracebridge.core.lax.special.gamma import *
from tracebridge.core.lax.special.normal import *
from tracebridge.core.lax.special.zeta import *
from tracebridge.core.lax.stored import stored as stored
from tracebridge.core.lax.stored import stored_p as stored_p


def __dir__() -> list[str]:
    return [name for name, value in globals().items() if not isinstance(value, _ModuleType)]
