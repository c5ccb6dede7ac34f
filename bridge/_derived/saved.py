"""Programs that leave the process with their gradients, as text, and come back as Jaxprs.

A text holds up to three portable programs: the function; where the backward pass keeps values, the
function that also gives these; and the backward pass. For derivatives of derivatives the backward
pass is a function of inputs and cotangents, and has a backward pass itself. What comes back is a
Jaxpr with a rule for reverse mode, so that whatever is derived from Jaxprs of functions is derived
from it.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, final

import numpy as np

from tracebridge._api.custom.custom_vjp import custom_vjp
from tracebridge._derived.dependence import attached, paths_of, reached
from tracebridge._derived.gradients import conjugate, gradients, with_gradients
from tracebridge._derived.names import types_of
from tracebridge._derived.residuals import split_for_backward
from tracebridge.core._jaxlib.mlir import current_stablehlo_version, stablehlo_for_weeks
from tracebridge.core.dtypes.dtypes import as_dtype, is_inexact
from tracebridge.core.errors.export_errors import ExportError
from tracebridge.core.errors.transform_errors import MissingRuleError
from tracebridge.core.export.archive import damaged, pack, unpack
from tracebridge.core.export.called import WAY_OUT, Artifact, exported_call_p
from tracebridge.core.export.portable import portable_program, smaller_version
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.debug_info import DebugInfo
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.runtime.arrays.transfer import put_numpy
from tracebridge.core.symbolic.dims import DimExpr, is_static
from tracebridge.core.symbolic.scope import SymbolicScope, symbolic_shape

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
Mask = tuple[bool, ...]


# writing -----------------------------------------------------------------------------------------


MAX_CONSTANTS = 16 << 20
"""Bytes of the constants of a program that is saved, before they are compressed."""


class TooLargeError(ExportError):
    """A program has too many constants to be saved as text."""


def save_program(jaxpr: Jaxpr, name: str, *, order: int = 1, with_gradient: bool = False) -> str:
    """The text of a program and of its gradients by all inputs that can have one.

    Args:
        jaxpr: the program.
        name: what messages call it.
        order: how often what is read can be differentiated.
        with_gradient: whether a gradient that cannot be made is an error.

    Raises:
        ExportError: the program needs what only this process has.
        TooLargeError: its constants take more than ``MAX_CONSTANTS`` bytes.
    """
    writer = _Writer(name)
    writer.add("call", jaxpr)
    header: dict[str, Any] = {
        "name": name,
        "types": types_of(jaxpr.in_avals),
        "least": _least(jaxpr.in_avals),
        "paths": [_bits(row) for row in paths_of(jaxpr)],
        "order": order,
        "gradient": _add_gradient(writer, jaxpr, with_gradient, order),
        "stablehlo": writer.target,
        "tracebridge": importlib.import_module("tracebridge").__version__,
    }
    return pack({**header, **writer.header()}, writer.blocks)


def _add_gradient(writer: _Writer, jaxpr: Jaxpr, must: bool, order: int) -> Any:
    """What reading the gradient needs; a text why there is none."""
    if order == 0:
        return _NOT_ASKED
    if order > 1:
        return _add_orders(writer, jaxpr, must, order, 1)
    masks = _masks(jaxpr)
    if masks is None:
        return _NO_PATH
    active, cotangents = masks
    try:
        joint = with_gradients(jaxpr, active, cotangents)
        split = split_for_backward(joint, jaxpr, cotangents)
        inputs, backward = split.inputs, split.backward
        if not all([is_static(a.shape) for a in jaxpr.in_avals]):
            # All sizes are known from the inputs of the function, not from some of them.
            inputs, backward = tuple(range(jaxpr.n_in)), split.backward_of_all(cotangents)
        if split.n_residuals:
            writer.add("forward", split.forward)
        writer.add("backward", backward)
    except TooLargeError:
        raise
    except Exception as error:
        if must:
            raise
        writer.drop("forward", "backward")
        return str(error).partition("\n")[0]
    return {
        "active": _bits(active),
        "cotangents": _bits(cotangents),
        "inputs": inputs,
        "results": split.results,
        "n_residuals": split.n_residuals,
    }


_NOT_ASKED = "it was saved with grad_order=0"
_NO_PATH = "no result depends on an input in a way that has derivatives"


def _masks(jaxpr: Jaxpr) -> tuple[Mask, Mask] | None:
    """The inputs that have gradients, and the results that they come from."""
    paths = paths_of(jaxpr)
    inexact = [is_inexact(a.dtype) for a in jaxpr.in_avals]
    active = reached(inexact, paths, (True,) * len(paths))
    return (active, attached(active, paths)) if any(active) else None


def _add_orders(writer: _Writer, jaxpr: Jaxpr, must: bool, order: int, k: int) -> Any:
    """Likewise for a gradient that is a function with gradients up to ``order`` itself."""
    masks = _masks(jaxpr)
    if masks is None:
        return _NO_PATH
    active, cotangents = masks
    kind = "backward" if k == 1 else f"backward{k}"
    try:
        backward = gradients(jaxpr, active, cotangents)
        writer.add(kind, backward)
    except TooLargeError:
        raise
    except Exception as error:
        if must:
            raise
        writer.drop(kind)
        return str(error).partition("\n")[0]
    found: dict[str, Any] = {
        "active": _bits(active),
        "cotangents": _bits(cotangents),
        "inputs": tuple(range(jaxpr.n_in)),
        "results": (),
        "n_residuals": 0,
    }
    if k < order:
        found["paths"] = [_bits(row) for row in paths_of(backward)]
        found["next"] = _add_orders(writer, backward, must, order, k + 1)
    return found


def _least(avals: Sequence[ShapedArray]) -> int:
    """What sizes that vary are at least."""
    scopes = [d.scope for a in avals for d in a.shape if isinstance(d, DimExpr)]
    return getattr(scopes[0], "least", 1) if scopes else 1


def _bits(mask: Sequence[bool]) -> str:
    return "".join(["1" if m else "0" for m in mask])


def _mask(bits: str) -> Mask:
    return tuple([b == "1" for b in bits])


@final
class _Writer:
    """Programs, and the constants that they share."""

    def __init__(self, name: str) -> None:
        self.name = name
        # Readers may be some months behind.
        self.target = smaller_version(current_stablehlo_version(), stablehlo_for_weeks())
        self.blocks: list[bytes] = []
        self.programs: dict[str, Any] = {}
        self.constants: list[Any] = []
        self.n_bytes = 0
        self._known: dict[Any, int] = {}

    def add(self, kind: str, jaxpr: Jaxpr) -> None:
        made = portable_program(jaxpr, self.name, target=self.target, platforms=PLATFORMS)
        constants = [self._constant(c._to_numpy()) for c in made.constants]
        self.programs[kind] = {
            "block": self._block(made.data),
            "constants": constants,
            "in": types_of(made.in_avals),
            "out": types_of(made.out_avals),
            "platforms": made.platforms,
        }

    def drop(self, *kinds: str) -> None:
        for kind in kinds:
            self.programs.pop(kind, None)

    def header(self) -> dict[str, Any]:
        return {"programs": self.programs, "constants": self.constants}

    def _block(self, data: bytes) -> int:
        self.blocks.append(data)
        return len(self.blocks) - 1

    def _constant(self, array: np.ndarray[Any, Any]) -> int:
        data = np.ascontiguousarray(array).tobytes()
        key = array.dtype.name, array.shape, data
        found = self._known.get(key)
        if found is None:
            self.n_bytes += len(data)
            if self.n_bytes > MAX_CONSTANTS:
                msg = f"{self.name}: its constants take {self.n_bytes >> 20} MB and more"
                raise TooLargeError(msg, hint="pass large arrays as arguments")
            found = self._known[key] = len(self.constants)
            self.constants.append(
                {"dtype": array.dtype.name, "shape": array.shape, "block": self._block(data)}
            )
        return found


# reading -----------------------------------------------------------------------------------------


@final
class SavedProgram:
    """A program that was read; ``program(avals)`` is its Jaxpr."""

    __slots__ = ("_artifacts", "_call", "_constants", "_gradient", "_paths", "in_avals", "name")

    def __init__(self, text: str, name: str) -> None:
        """Read a text of ``save_program``; ``name`` is what messages call it.

        Raises:
            ExportError: it is damaged, or of a later version.
        """
        header, blocks = unpack(text, name)
        try:
            self._read(header, blocks)
        except ExportError:
            raise
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise damaged(name, "its parts do not fit") from error

    def _read(self, header: dict[str, Any], blocks: Sequence[bytes]) -> None:
        self.name = name = header["name"]
        _check_version(header, name)
        scope = SymbolicScope(least=header["least"])
        self.in_avals = tuple([_aval(t, scope) for t in header["types"]])
        self._paths = tuple([_mask(bits) for bits in header["paths"]])
        self._gradient = header["gradient"]
        arrays: list[Any] = []
        for c in header["constants"]:
            dtype: Any = as_dtype(c["dtype"])
            arrays.append(np.frombuffer(blocks[c["block"]], dtype).reshape(c["shape"]))
        self._constants: dict[str, list[Any]] = {}
        self._artifacts: dict[str, Artifact] = {}
        values = [put_numpy(a) for a in arrays]
        for kind, made in header["programs"].items():
            constants = [values[i] for i in made["constants"]]
            self._constants[kind] = constants
            self._artifacts[kind] = Artifact(
                name if kind == "call" else f"{name}_{kind}",
                blocks[made["block"]],
                [*[c.aval for c in constants], *[_aval(t, scope) for t in made["in"]]],
                [_aval(t, scope) for t in made["out"]],
                made["platforms"],
                len(constants),
                header["least"],
                header.get("order", 1),
            )
        self._call = self._with_gradient("call", self._gradient, self._paths)

    def program(self, avals: Sequence[ShapedArray]) -> Jaxpr:
        """The Jaxpr at inputs of these types.

        Raises:
            ShapeMismatchError: the program is for others.
        """
        self._artifacts["call"].results([*[c.aval for c in self._constants["call"]], *avals])
        jaxpr = stage(lambda *xs: self._call(*xs), avals, DebugInfo(self.name), locate=False)
        jaxpr.cache["torch paths"] = self._paths
        return jaxpr

    def _run(self, kind: str, values: Sequence[Any]) -> list[Any]:
        constants = self._constants[kind]
        return list(exported_call_p.bind(*constants, *values, artifact=self._artifacts[kind]))

    def _with_gradient(self, kind: str, gradient: Any, paths: Sequence[Mask]) -> Any:
        """A program as a function with its rule; without one if ``gradient`` is None."""

        def call(*xs: Any) -> list[Any]:
            return self._run(kind, xs)

        call.__name__ = call.__qualname__ = self._artifacts[kind].name
        if gradient is None or not any([any(row) for row in paths]):
            return call
        if isinstance(gradient, str):
            reason, name, asked = gradient, call.__name__, gradient == _NOT_ASKED

            def backward(residuals: Any, cts: Any) -> Any:
                msg = f"{name}: the saved program has no gradient: {reason}"
                raise MissingRuleError(
                    exported_call_p.name, "derivative", message=msg, hint=WAY_OUT if asked else ""
                )

            def forward(*xs: Any) -> Any:
                return call(*xs), ()

        else:
            forward, backward = self._rules(kind, gradient, lambda: ruled)
        ruled = custom_vjp(call)
        ruled.defvjp(forward, backward)
        return ruled

    def _rules(self, kind: str, gradient: dict[str, Any], ruled: Any) -> tuple[Any, Any]:
        """The forward and the backward rule; ``ruled()`` is the function that has them."""
        n_out = len(self._artifacts[kind].out_avals)
        active, given = _mask(gradient["active"]), _mask(gradient["cotangents"])
        below = "backward" if kind == "call" else f"backward{int(kind[8:] or 1) + 1}"
        paths = [_mask(bits) for bits in gradient.get("paths", ())]
        pull = self._with_gradient(below, gradient.get("next"), paths)

        def forward(*xs: Any) -> Any:
            # Who differentiates again differentiates what is ruled.
            values = self._run("forward", xs) if gradient["n_residuals"] else list(ruled()(*xs))
            outs = values[:n_out]
            of_results = [outs[i] for i in gradient["results"]]
            return outs, [*[xs[i] for i in gradient["inputs"]], *of_results, *values[n_out:]]

        def backward(saved: Any, cts: Any) -> Any:
            # Programs have the convention of torch and TensorFlow for complex values.
            taken = [conjugate(ct) for ct, here in zip(cts, given, strict=True) if here]
            found = iter([conjugate(g) for g in pull(*saved, *taken)])
            return tuple([next(found) if a else None for a in active])

        return forward, backward


def _check_version(header: dict[str, Any], name: str) -> None:
    ours, wanted = current_stablehlo_version(), header["stablehlo"]
    if smaller_version(ours, wanted) != wanted:
        raise ExportError(
            f"{name}: the saved program is of StableHLO {wanted}, written by tracebridge "
            f"{header['tracebridge']}; this jaxlib reads up to {ours}",
            hint="install a newer jaxlib, or export again with an older one",
        )


def _aval(text: str, scope: SymbolicScope) -> ShapedArray:
    """The aval of ``float32[d0,3]``."""
    dtype, _, sizes = text.partition("[")
    return ShapedArray(symbolic_shape(sizes.removesuffix("]"), scope=scope), as_dtype(dtype))
