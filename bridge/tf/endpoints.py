"""The object that is saved: endpoints with their variables and derivatives."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.core.tree.paths import keystr
from tracebridge.core.tree.tree import flatten
from tracebridge.core.tree.treedefs import leaf_paths
from tracebridge.tf.pullbacks import stored_program
from tracebridge.tf.signature import unique
from tracebridge.tf.tracing import Traced


class _Owner(tf.Module):
    """What has variables; those who load a model ask it for them."""

    # Attributes in place of the properties, which a loaded object has not.
    variables: Any = ()
    trainable_variables: Any = ()

    def __init__(self, name: str, variables: Sequence[Any]) -> None:
        super().__init__(name=name)
        # What stands in two places of the tree is one variable, and trained once.
        self.variables = list({id(v): v for v in variables}.values())
        self.trainable_variables = [v for v in self.variables if v.trainable]


class Endpoint(NamedTuple):
    """A function to save: its name, the specs and names of its inputs, and its program.

    ``order``: how many derivatives are saved. ``names``: of the leaves of ``inputs``.
    """

    name: str
    inputs: tuple[object, ...]
    parameters: list[inspect.Parameter]
    names: Sequence[str]
    traced: Traced
    order: int


def saved_object(first: tuple[object, ...], endpoints: Sequence[Endpoint]) -> tuple[Any, list[Any]]:
    """The object to save, and a signature with flat inputs for each endpoint.

    The object has the endpoints by name, ``params``, and the functions of the derivatives, and is
    called like the first endpoint. ``first`` has the parameters, if there are some.
    """
    leaves, tree = flatten(first)
    paths = unique([keystr(path[1:], simple=True, separator="/") for path in leaf_paths(tree)])
    variables = [
        _variable(leaf, path or "params") for leaf, path in zip(leaves, paths, strict=True)
    ]
    root: Any = _Owner("model", variables)
    signatures: list[Any] = []
    for endpoint in endpoints:
        served = _served(variables, endpoint)
        setattr(root, endpoint.name, served)
        signatures.append(_flat_signature(served, endpoint))
    root.__call__ = getattr(root, endpoints[0].name).__call__
    if first:
        params = tree.unflatten(variables)[0]
        # TensorFlow saves dicts, lists and tuples; other trees become a dict by path.
        root.params = params if _is_plain(params) else dict(zip(paths, variables, strict=True))
    return root, signatures


def _served(variables: Sequence[Any], endpoint: Endpoint) -> Any:
    """The callable of an endpoint, with its derivatives."""
    traced, order = endpoint.traced, endpoint.order
    program = traced.program
    stored = stored_program(program, order, limit=order)
    _check_results(traced)

    class Served(_Owner):
        """What ``serve`` is: callable, and the owner of all that a call needs.

        A plain function would not keep the variables alive: ``load(path).serve(x)`` would drop
        them together with the loaded object before the call.
        """

        def __init__(self) -> None:
            super().__init__(endpoint.name, variables)
            # The loaded model finds derivatives of the second and higher orders only in
            # functions that are saved, with a trace, as attributes.
            self.gradients = stored.pulls

    def call(self: Any, *args: object) -> Any:
        del self
        tensors = [*[tf.convert_to_tensor(v) for v in variables], *flatten(args)[0]]
        return traced.result(stored.run(tensors))

    owner = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    call.__signature__ = inspect.Signature([owner, *endpoint.parameters])
    Served.__call__ = tf.function(call, input_signature=endpoint.inputs, autograph=False)
    served: Any = Served()
    served.__call__.get_concrete_function()
    return served


def _check_results(traced: Traced) -> None:
    """Raise where TensorFlow cannot write the structure of the results.

    Raises:
        ArgumentSpecError: a dict has other keys than strings.
    """
    tree = traced.out_tree
    for path in leaf_paths(tree):
        for entry in path:
            key = getattr(entry, "key", "")
            if not isinstance(key, str):
                raise ArgumentSpecError(
                    f"{traced.program.name}: the result has a dict with the key {key!r} of type "
                    f"{type(key).__name__}",
                    expected="strings as keys of dicts: a SavedModel has no others",
                )


def _flat_signature(served: Any, endpoint: Endpoint) -> Any:
    """The endpoint with one named tensor for each leaf, and a dict of named results."""
    specs, tree = flatten(endpoint.inputs)
    flat: list[Any] = []
    wanted = [
        identifier(spec.name or name) for spec, name in zip(specs, endpoint.names, strict=True)
    ]
    _, *free = unique(["self", *wanted])  # TensorFlow's own methods take the names as keywords
    for spec, name in zip(specs, free, strict=True):
        flat.append(tf.TensorSpec(spec.shape, spec.dtype, name=name))

    @tf.function(input_signature=flat, autograph=False)  # pyright: ignore[reportUntypedFunctionDecorator] - TensorFlow has no stubs for it
    def signature(*tensors: Any) -> dict[str, Any]:
        out = served(*tree.unflatten(tensors))
        leaves, out_tree = flatten(out)
        if isinstance(out, dict):
            paths = [keystr(p, simple=True, separator="_") for p in leaf_paths(out_tree)]
            return dict(zip(unique([identifier(p) for p in paths]), leaves, strict=True))
        return {f"output_{i}": leaf for i, leaf in enumerate(leaves)}

    made: Any = signature
    return made.get_concrete_function()


def _variable(value: Any, name: str) -> Any:
    if isinstance(value, tf.Variable):
        return value
    inexact = value.dtype.is_floating or value.dtype.is_complex
    return tf.Variable(value, trainable=inexact, name=_variable_name(name))


def _variable_name(path: str) -> str:
    """A path such as ``kernel/qkv`` in the characters that graphs allow."""
    return re.sub(r"[^A-Za-z0-9_./-]", "_", path).lstrip("_/-") or "params"


def _is_plain(tree: Any) -> bool:
    if isinstance(tree, tf.Variable):
        return True
    if type(tree) is dict:
        return all(isinstance(k, str) and _is_plain(v) for k, v in tree.items())
    return type(tree) in (list, tuple) and all(map(_is_plain, tree))


def identifier(name: str) -> str:
    """A name that graphs and signatures take."""
    text = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")
    return text if text and not text[0].isdigit() else f"x_{text}".rstrip("_")
