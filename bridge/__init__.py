"""A differentiable array engine on XLA, with bridges to PyTorch and TensorFlow.

Importing the package loads little of it: functions and submodules are loaded when they are first
used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tracebridge import _install as _install
from tracebridge.core.config.config import config as config
from tracebridge.core.dtypes.dtypes import float0 as float0
from tracebridge.core.errors.filtering import public as _public
from tracebridge.interop.frameworks import look_at as _look_at
from tracebridge.version import __version__ as __version__
from tracebridge.version import __version_info__ as __version_info__

if TYPE_CHECKING:
    from tracebridge import _src as _src
    from tracebridge import ad as ad
    from tracebridge import ad_checkpoint as ad_checkpoint
    from tracebridge import api_util as api_util
    from tracebridge import checkpoint_policies as checkpoint_policies
    from tracebridge import custom_batching as custom_batching
    from tracebridge import custom_derivatives as custom_derivatives
    from tracebridge import custom_transpose as custom_transpose
    from tracebridge import debug as debug
    from tracebridge import distributed as distributed
    from tracebridge import dlpack as dlpack
    from tracebridge import dtypes as dtypes
    from tracebridge import errors as errors
    from tracebridge import example_libraries as example_libraries
    from tracebridge import experimental as experimental
    from tracebridge import export as export
    from tracebridge import extend as extend
    from tracebridge import ffi as ffi
    from tracebridge import flatten_util as flatten_util
    from tracebridge import image as image
    from tracebridge import interpreters as interpreters
    from tracebridge import lax as lax
    from tracebridge import memory as memory
    from tracebridge import monitoring as monitoring
    from tracebridge import nn as nn
    from tracebridge import numpy as numpy
    from tracebridge import ops as ops
    from tracebridge import profiler as profiler
    from tracebridge import random as random
    from tracebridge import ref as ref
    from tracebridge import scipy as scipy
    from tracebridge import sharding as sharding
    from tracebridge import stages as stages
    from tracebridge import symbolic_shapes as symbolic_shapes
    from tracebridge import test_util as test_util
    from tracebridge import testing as testing
    from tracebridge import tf as tf
    from tracebridge import torch as torch
    from tracebridge import tree as tree
    from tracebridge import tree_util as tree_util
    from tracebridge import typing as typing
    from tracebridge import version as version
    from tracebridge._api.args.names import named_call as named_call
    from tracebridge._api.args.names import named_scope as named_scope
    from tracebridge._api.custom.custom_gradient import custom_gradient as custom_gradient
    from tracebridge._api.custom.custom_jvp import custom_jvp as custom_jvp
    from tracebridge._api.custom.custom_vjp import custom_vjp as custom_vjp
    from tracebridge._api.derivatives.checkpoint import checkpoint as checkpoint
    from tracebridge._api.derivatives.checkpoint import remat as remat
    from tracebridge._api.derivatives.grad import grad as grad
    from tracebridge._api.derivatives.grad import value_and_grad as value_and_grad
    from tracebridge._api.derivatives.jacobian import hessian as hessian
    from tracebridge._api.derivatives.jacobian import jacfwd as jacfwd
    from tracebridge._api.derivatives.jacobian import jacobian as jacobian
    from tracebridge._api.derivatives.jacobian import jacrev as jacrev
    from tracebridge._api.derivatives.jvp import jvp as jvp
    from tracebridge._api.derivatives.jvp import linearize as linearize
    from tracebridge._api.derivatives.vjp import fwd_and_bwd as fwd_and_bwd
    from tracebridge._api.derivatives.vjp import linear_transpose as linear_transpose
    from tracebridge._api.derivatives.vjp import vjp as vjp
    from tracebridge._api.devices.devices import default_backend as default_backend
    from tracebridge._api.devices.devices import device_count as device_count
    from tracebridge._api.devices.devices import devices as devices
    from tracebridge._api.devices.devices import host_count as host_count
    from tracebridge._api.devices.devices import host_id as host_id
    from tracebridge._api.devices.devices import host_ids as host_ids
    from tracebridge._api.devices.devices import local_device_count as local_device_count
    from tracebridge._api.devices.devices import local_devices as local_devices
    from tracebridge._api.devices.devices import process_count as process_count
    from tracebridge._api.devices.devices import process_index as process_index
    from tracebridge._api.devices.devices import process_indices as process_indices
    from tracebridge._api.devices.reshard import reshard as reshard
    from tracebridge._api.devices.shard_map import shard_map as shard_map
    from tracebridge._api.devices.shard_map import smap as smap
    from tracebridge._api.devices.sharded_arrays import (
        device_put_replicated as device_put_replicated,
    )
    from tracebridge._api.devices.sharded_arrays import device_put_sharded as device_put_sharded
    from tracebridge._api.devices.sharded_arrays import (
        make_array_from_callback as make_array_from_callback,
    )
    from tracebridge._api.devices.sharded_arrays import (
        make_array_from_process_local_data as make_array_from_process_local_data,
    )
    from tracebridge._api.devices.sharded_arrays import (
        make_array_from_single_device_arrays as make_array_from_single_device_arrays,
    )
    from tracebridge._api.devices.sharded_arrays import make_mesh as make_mesh
    from tracebridge._api.devices.transfer import block_until_ready as block_until_ready
    from tracebridge._api.devices.transfer import copy_to_host_async as copy_to_host_async
    from tracebridge._api.devices.transfer import device_get as device_get
    from tracebridge._api.devices.transfer import device_put as device_put
    from tracebridge._api.devices.transfer import live_arrays as live_arrays
    from tracebridge._api.programs.environment import (
        print_environment_info as print_environment_info,
    )
    from tracebridge._api.programs.eval_shape import eval_shape as eval_shape
    from tracebridge._api.programs.jit import clear_caches as clear_caches
    from tracebridge._api.programs.jit import jit as jit
    from tracebridge._api.programs.make_jaxpr import make_jaxpr as make_jaxpr
    from tracebridge._api.programs.mask import mask as mask
    from tracebridge._api.programs.mask import shapecheck as shapecheck
    from tracebridge._api.programs.xla_computation import xla_computation as xla_computation
    from tracebridge._api.vectorize.pmap import pmap as pmap
    from tracebridge._api.vectorize.vmap import vmap as vmap
    from tracebridge.core._jaxlib.xla import Device as Device
    from tracebridge.core.compat.evaluation import (
        ensure_compile_time_eval as ensure_compile_time_eval,
    )
    from tracebridge.core.config.option_scopes import check_tracer_leaks as check_tracer_leaks
    from tracebridge.core.config.option_scopes import checking_leaks as checking_leaks
    from tracebridge.core.config.option_scopes import debug_infs as debug_infs
    from tracebridge.core.config.option_scopes import debug_key_reuse as debug_key_reuse
    from tracebridge.core.config.option_scopes import debug_nans as debug_nans
    from tracebridge.core.config.option_scopes import default_device as default_device
    from tracebridge.core.config.option_scopes import (
        default_matmul_precision as default_matmul_precision,
    )
    from tracebridge.core.config.option_scopes import default_prng_impl as default_prng_impl
    from tracebridge.core.config.option_scopes import disable_jit as disable_jit
    from tracebridge.core.config.option_scopes import enable_checks as enable_checks
    from tracebridge.core.config.option_scopes import enable_custom_prng as enable_custom_prng
    from tracebridge.core.config.option_scopes import enable_x64 as enable_x64
    from tracebridge.core.config.option_scopes import explain_cache_misses as explain_cache_misses
    from tracebridge.core.config.option_scopes import explicit_x64_dtypes as explicit_x64_dtypes
    from tracebridge.core.config.option_scopes import legacy_prng_key as legacy_prng_key
    from tracebridge.core.config.option_scopes import log_compiles as log_compiles
    from tracebridge.core.config.option_scopes import no_execution as no_execution
    from tracebridge.core.config.option_scopes import no_tracing as no_tracing
    from tracebridge.core.config.option_scopes import numpy_dtype_promotion as numpy_dtype_promotion
    from tracebridge.core.config.option_scopes import numpy_rank_promotion as numpy_rank_promotion
    from tracebridge.core.config.option_scopes import (
        threefry_partitionable as threefry_partitionable,
    )
    from tracebridge.core.config.transfer_guards import transfer_guard as transfer_guard
    from tracebridge.core.config.transfer_guards import (
        transfer_guard_device_to_device as transfer_guard_device_to_device,
    )
    from tracebridge.core.config.transfer_guards import (
        transfer_guard_device_to_host as transfer_guard_device_to_host,
    )
    from tracebridge.core.config.transfer_guards import (
        transfer_guard_host_to_device as transfer_guard_host_to_device,
    )
    from tracebridge.core.config.user_context import make_user_context as make_user_context
    from tracebridge.core.control.callbacks.pure import pure_callback as pure_callback
    from tracebridge.core.control.custom.closure_convert import closure_convert as closure_convert
    from tracebridge.core.control.refs.functions import empty_ref as empty_ref
    from tracebridge.core.control.refs.functions import free_ref as free_ref
    from tracebridge.core.control.refs.functions import freeze as freeze
    from tracebridge.core.control.refs.functions import new_ref as new_ref
    from tracebridge.core.control.refs.ref import Ref as Ref
    from tracebridge.core.ir.shape_struct import ShapeDtypeStruct as ShapeDtypeStruct
    from tracebridge.core.ir.typeof import typeof as typeof
    from tracebridge.core.runtime.arrays.array import Array as Array
    from tracebridge.core.runtime.arrays.shards import Shard as Shard
    from tracebridge.core.runtime.effects.tokens import effects_barrier as effects_barrier
    from tracebridge.core.sharding.context import set_mesh as set_mesh
    from tracebridge.core.sharding.named import NamedSharding as NamedSharding
    from tracebridge.core.sharding.partition_spec import P as P
    from tracebridge.numpy._index_windows import ds as ds

# fmt: off
_SUBMODULES = frozenset((
    "_src",
    "ad", "ad_checkpoint", "api_util", "checkpoint_policies", "custom_batching",
    "custom_derivatives", "custom_transpose", "debug", "distributed", "dlpack", "dtypes", "errors",
    "example_libraries", "experimental", "export", "extend", "ffi", "flatten_util", "image",
    "interpreters", "lax", "memory", "monitoring", "nn", "numpy", "ops", "profiler", "random",
    "ref", "scipy", "sharding", "stages", "symbolic_shapes", "test_util", "testing", "tf", "torch",
    "tree", "tree_util", "typing", "version",
))
# fmt: on
_FRAMEWORKS = frozenset(("torch", "tensorflow"))
# Module below this package -> the names that come from it.
_NAMES_BY_MODULE = {
    "_api.derivatives.checkpoint": "checkpoint remat",
    "_api.custom.custom_gradient": "custom_gradient",
    "_api.custom.custom_jvp": "custom_jvp",
    "_api.custom.custom_vjp": "custom_vjp",
    "_api.devices.devices": (
        "default_backend device_count devices host_count host_id host_ids local_device_count "
        "local_devices process_count process_index process_indices"
    ),
    "_api.programs.environment": "print_environment_info",
    "_api.programs.eval_shape": "eval_shape",
    "_api.derivatives.grad": "grad value_and_grad",
    "_api.derivatives.jacobian": "hessian jacfwd jacobian jacrev",
    "_api.programs.jit": "clear_caches jit",
    "_api.derivatives.jvp": "jvp linearize",
    "_api.programs.make_jaxpr": "make_jaxpr",
    "_api.programs.mask": "mask shapecheck",
    "_api.args.names": "named_call named_scope",
    "_api.vectorize.pmap": "pmap",
    "_api.devices.reshard": "reshard",
    "_api.devices.shard_map": "shard_map smap",
    "_api.devices.sharded_arrays": (
        "device_put_replicated device_put_sharded make_array_from_callback "
        "make_array_from_process_local_data make_array_from_single_device_arrays make_mesh"
    ),
    "_api.devices.transfer": (
        "block_until_ready copy_to_host_async device_get device_put live_arrays"
    ),
    "_api.derivatives.vjp": "fwd_and_bwd linear_transpose vjp",
    "_api.vectorize.vmap": "vmap",
    "_api.programs.xla_computation": "xla_computation",
    "core._jaxlib.xla": "Device",
    "core.config.option_scopes": (
        "check_tracer_leaks checking_leaks debug_infs debug_key_reuse debug_nans default_device "
        "default_matmul_precision default_prng_impl disable_jit enable_checks enable_custom_prng "
        "enable_x64 explain_cache_misses explicit_x64_dtypes legacy_prng_key log_compiles "
        "no_execution no_tracing numpy_dtype_promotion numpy_rank_promotion threefry_partitionable"
    ),
    "core.config.transfer_guards": (
        "transfer_guard transfer_guard_device_to_device transfer_guard_device_to_host "
        "transfer_guard_host_to_device"
    ),
    "core.config.user_context": "make_user_context",
    "core.control.callbacks.pure": "pure_callback",
    "core.control.custom.closure_convert": "closure_convert",
    "core.control.refs.ref": "Ref",
    "core.control.refs.functions": "empty_ref free_ref freeze new_ref",
    "core.compat.evaluation": "ensure_compile_time_eval",
    "core.ir.shape_struct": "ShapeDtypeStruct",
    "core.ir.typeof": "typeof",
    "core.runtime.arrays.array": "Array",
    "core.runtime.arrays.shards": "Shard",
    "core.sharding.context": "set_mesh",
    "core.sharding.named": "NamedSharding",
    "core.sharding.partition_spec": "P",
    "core.runtime.effects.tokens": "effects_barrier",
    "numpy._index_windows": "ds",
}
_MODULE_OF = {
    name: f"tracebridge.{module}"
    for module, names in _NAMES_BY_MODULE.items()
    for name in names.split()
}

__all__ = ["config", "float0", *_MODULE_OF]  # pyright: ignore[reportUnsupportedDunderAll]  # noqa: PLE0604 - the table is the list


if not TYPE_CHECKING:  # a type checker knows the names above, and finds misspelt ones

    def __getattr__(name: str) -> Any:
        """Load a function or a submodule at its first use and keep it."""
        if name in _MODULE_OF:
            value = getattr(importlib.import_module(_MODULE_OF[name]), name)
            value = _public(value, name, __name__)
        elif name in _SUBMODULES:
            try:
                value = _look_at(f"tracebridge.{name}")
            except ModuleNotFoundError as error:
                if error.name not in _FRAMEWORKS:
                    raise
                # hasattr and completion ask for names; an import statement says the same words.
                raise AttributeError(str(error)) from error
        else:
            raise importlib.import_module("tracebridge._api.programs.missing").missing(
                __name__, name
            )
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_SUBMODULES, "__version__", "__version_info__"})
