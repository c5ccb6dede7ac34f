"""What ``make test`` does to be short: parts of long tables of cases, and quick compilations.

``make test-all`` runs every case, compiled as users' programs are, and so does pytest by itself.
What is left out here are some 13,500 cases, which take about 50 minutes of one core.
"""

from __future__ import annotations

import collections
import zlib
from collections.abc import Iterable

WHOLE = 8
"""Tables with this many cases run as a whole, and at least so many of longer ones."""

SHARE = 16
"""Of a longer table, every sixteenth case."""

NEVER_SAMPLED = ("tests/architecture/", "tests/doctests/", "tests/rules/", "tests/typing/")
"""Their cases are files, pages and classes: each is alone in what it says, and cheap."""

HEAVY = {
    "tests/bridge/scipy/test_sparse_linalg.py::test_solutions": 3,
    "tests/bridge/_api/test_tracers.py::test_option_finds_leaks_at_once": 2,
    "tests/bridge/random/test_streams.py::test_distributions": 8,
    "tests/core/control/callbacks/test_memory.py::test_callbacks_are_freed": 2,
    "tests/core/lax/test_elementwise_table.py::test_rules_agree": 36,
    "tests/core/linalg/test_eigen.py::test_svd": 8,
    "tests/integration/torch/test_translated_operators.py::test_operators_equal_those_of_torch": 2,
    "tests/integration/torch/test_other_processes.py::test_the_cache_of_inductor": 0,
    "tests/properties/test_hard_points.py::test_derivatives_exist_where_the_limits_do": 2,
    "tests/properties/test_pairs.py::test_pairs": 12,
    "tests/bridge/test_profiler.py::test_a_process_without_server_cannot_be_registered": 0,
    "tests/integration/test_import_orders.py::test_every_order_is_healthy": 1,
    "tests/examples/test_examples.py::test_short_run": 1,
    "tests/integration/torch/test_names.py::test_compiled_functions_that_died_are_not_called": 1,
    "tests/integration/torch/test_from_module.py::test_networks_at_another_batch_size": 1,
    "tests/integration/tf/test_native_ops.py::test_every_primitive": 12,
    "tests/integration/tf/test_native_ops.py::test_is_the_function": 16,
    "tests/integration/tf/test_linalg.py::test_general_eigenvalues": 1,
    "tests/integration/tf/test_linalg.py::test_gradients_are_tensorflows": 4,
    "tests/integration/tf/test_linalg.py::test_residuals": 2,
    "tests/integration/tf/test_linalg.py::test_singular": 1,
    "tests/integration/tf/test_primitives.py::test_elementwise": 10,
    "tests/integration/tf/test_primitives.py::test_programs": 12,
    "tests/integration/tf/test_primitives.py::test_programs_of_64_bits": 3,
    "tests/integration/tf/test_primitives.py::test_saved": 2,
    "tests/integration/tf/test_tflite.py::test_linear_algebra": 3,
    "tests/integration/tf/test_tflite.py::test_native": 3,
    "tests/integration/tf/test_tflite.py::test_not_run": 2,
    "tests/integration/tf/test_tflite.py::test_primitives": 10,
    "tests/integration/tf/test_tflite.py::test_refused": 4,
    "tests/integration/tf/test_tflite.py::test_values_without_gradients": 2,
    "tests/integration/tf/test_tflite.py::test_wrong": 2,
    "tests/typing/test_typing.py::test_a_typed_program_by_mypy": 0,
    "tests/integration/torch/test_graph_module.py::test_elementwise": 80,
    "tests/integration/torch/test_graph_module.py::test_is_the_function": 16,
    "tests/integration/torch/test_fullgraph_edges.py::test_aot_inductor": 0,
    "tests/integration/torch/test_graphs.py::test_compile_inductor": 0,
    "tests/core/interpreters/test_leaks.py::test_cycles_that_nobody_refers_to_pass": 0,
    "tests/core/compat/test_primitive_programs.py::test_objects_live_as_long_as_the_program": 0,
    "tests/integration/test_option_keys.py::"
    "test_graphs_are_of_the_options_that_they_were_made_under": 0,
    "tests/integration/torch/test_late_gradients.py::test_nothing_stays": 0,
    "tests/integration/torch/test_other_processes.py::test_the_same_functions": 0,
    "tests/properties/test_scopes_in_any_order.py::test_many_collections_at_any_time": 0,
    "tests/properties/test_scopes_in_any_order.py::"
    "test_a_generator_of_a_finished_trace_brings_nothing_back": 1,
    "tests/bridge/numpy/test_table.py::test_each_argument_may_be_mapped_alone": 40,
    "tests/bridge/numpy/test_table.py::test_jit_and_vmap_change_nothing": 150,
    "tests/bridge/numpy/test_weak_types.py::test_scalars_take_the_dtype_of_arrays": 6,
    "tests/bridge/random/test_streams.py::test_basic_draws": 24,
    "tests/bridge/random/test_streams.py::test_wide_draws": 3,
    "tests/bridge/scipy/linalg/test_scipy_linalg.py::test_derivatives": 1,
    "tests/bridge/scipy/linalg/test_scipy_linalg.py::test_derivatives_of_polar_factors": 1,
    "tests/bridge/scipy/linalg/test_scipy_linalg.py::test_factors_are_scipys": 2,
    "tests/bridge/scipy/linalg/test_scipy_linalg.py::test_functions_are_scipys": 2,
    "tests/bridge/scipy/test_special.py::test_derivatives": 3,
    "tests/core/control/scan/test_after_loop.py::test_gradients_are_those_of_the_loop": 4,
    "tests/core/conv/test_cpu_rules.py::test_forms_agree_with_the_operation": 7,
    "tests/core/lax/reduce/test_cpu_sums.py::test_sums_are_those_of_float64": 6,
    "tests/core/lax/reduce/test_cumulative.py::test_all_rules_agree": 4,
    "tests/core/lax/reduce/test_portable.py::test_same_results": 10,
    "tests/core/lax/test_elementwise_table.py::test_rank_0_operands_stand_beside_arrays": 10,
    "tests/integration/torch/test_dependence.py::test_in_compiled_graphs": 1,
    "tests/integration/torch/test_fullgraph_content.py::test_changes_between_calls": 6,
    "tests/integration/torch/test_fullgraph_content.py::test_what_is_closed_over": 8,
    "tests/integration/torch/test_graphs.py::test_compile": 4,
    "tests/integration/torch/test_late_gradients.py::test_gradients_are_those_of_torch": 8,
    "tests/integration/torch/test_names.py::test_compiled_modules_that_died_are_not_called": 1,
    "tests/integration/torch/test_train_step_edges.py::test_nets_that_call_wrapped_functions": 1,
    "tests/integration/torch/test_translated_control.py::test_values_and_gradients": 2,
    "tests/integration/torch/test_wrap_lifetimes.py::test_a_pullback_outlives_the_function": 1,
    "tests/integration/tf/test_dynamic_shapes.py::"
    "test_program_for_all_sizes_agrees_with_programs_for_one": 6,
    "tests/integration/tf/test_dynamic_shapes.py::test_unknown_sizes_may_be_0": 12,
    "tests/integration/tf/test_tflite.py::test_networks_of_any_batch": 2,
    "tests/properties/test_library_transformations.py::"
    "test_calls_are_the_same_however_they_run": 10,
    "tests/properties/test_library_transformations.py::test_each_argument_may_be_mapped_alone": 8,
    "tests/properties/test_library_transformations.py::"
    "test_second_derivatives_are_those_of_differences": 8,
    "tests/bridge/experimental/sparse/test_bcoo_products.py::test_products_of_any_axes": 4,
    "tests/bridge/nn/test_attention.py::test_blocks_of_a_bias": 4,
    "tests/bridge/nn/test_initializers.py::test_modes_and_complex_numbers": 4,
    "tests/bridge/numpy/test_polynomial_fits.py::test_polyfit": 3,
    "tests/bridge/numpy/test_singular_points.py::test_gradients_of_slices": 8,
    "tests/bridge/ops/test_segments.py::test_segments_agree_with_a_loop": 4,
    "tests/bridge/random/test_distributions.py::test_discrete_samples_have_their_moments": 4,
    "tests/bridge/scipy/test_optimize.py::test_known_minima": 4,
    "tests/core/control/scan/test_laws.py::test_gradient": 7,
    "tests/core/control/scan/test_laws.py::test_jvp": 7,
    "tests/core/control/scan/test_laws.py::test_second_order": 7,
    "tests/core/control/scan/test_laws.py::test_vmap": 7,
    "tests/core/linalg/test_eigen.py::test_derivatives_of_svd": 4,
    "tests/core/linalg/test_schur.py::test_tangents_of_batches": 2,
    "tests/core/lowering/rewrites/test_compared.py::test_each_row_has_a_gradient": 3,
    "tests/core/windows/test_windows.py::test_windows_agree_with_a_loop": 4,
    "tests/integration/torch/test_attention.py::test_values_and_gradients_are_those_of_torch": 5,
    "tests/integration/torch/test_hazards.py::test_storages_that_were_resized_are_refused": 4,
    "tests/integration/torch/test_whole_functions.py::test_least_squares": 4,
    "tests/properties/test_digits_of_several.py::test_values_slopes_and_second_derivatives": 4,
}
"""Tables whose cases start processes or compile for seconds: so many cases of each. The runtime
takes 30 seconds before it says that it finds no server."""


OPTIMISED_FOLDERS = (
    "tests/architecture/",
    "tests/core/_jaxlib/",
    "tests/core/aot/",
    "tests/core/lowering/",
    "tests/core/runtime/",
    "tests/core/special/",
    "tests/devices/",
    "tests/golden/",
)
"""Tests whose subject is the compiled program."""

OPTIMISED_FILES = (
    "accuracy", "branch_cuts", "cpu_", "exact", "hard_points", "largest", "memory", "portable",
    "precision", "ulps",
)  # fmt: skip
"""Parts of names of other files of that kind."""

OPTIMISED_CASES = (
    "tests/doctests/test_pages.py::test_examples_of_pages_are_right[docs/howto/debugging.md]",
    "tests/integration/test_option_keys.py::",
    "tests/integration/torch/test_distributed.py::",
)
"""Tests that set the option of it themselves, or compare with a process that has its default."""


def sampled(node_ids: Iterable[str]) -> set[str]:
    """The tests of a run that are run.

    Of each test with many cases, so many as above: one of each group of cases whose ids begin
    alike (cases of one function, say), and what more the checksum of its id picks. Which ones
    depends on their ids alone, so that all workers choose alike.
    """
    tables: dict[str, list[str]] = collections.defaultdict(list)
    for node_id in node_ids:
        tables[node_id.partition("[")[0]].append(node_id)
    chosen: set[str] = set()
    for name, cases in tables.items():
        if name in HEAVY:
            chosen.update(_shuffled(cases)[: HEAVY[name]])
        elif len(cases) <= WHOLE or name.startswith(NEVER_SAMPLED):
            chosen.update(cases)
        else:
            chosen.update(_of_table(cases))
    return chosen


def compiles_quickly(node_id: str) -> bool:
    """Whether XLA hardly optimises what a test of a short run compiles.

    Compiling is most of what tests do. Rules of primitives and transformations are right or wrong
    before XLA sees them; of the files with such tests every eighth compiles as users do, too.
    """
    file = node_id.partition("::")[0]
    if file.startswith(OPTIMISED_FOLDERS) or node_id.startswith(OPTIMISED_CASES):
        return False
    if any(part in file for part in OPTIMISED_FILES):
        return False
    return zlib.crc32(file.encode()) % 8 != 0


def _shuffled(cases: list[str]) -> list[str]:
    return sorted(cases, key=lambda case: (zlib.crc32(case.encode()), case))


def _of_table(cases: list[str]) -> set[str]:
    shuffled = _shuffled(cases)
    first_of = {_subject(case): case for case in reversed(shuffled)}
    chosen = set(first_of.values())
    wanted = max(WHOLE, len(cases) // SHARE)
    for case in shuffled:
        if len(chosen) >= wanted:
            break
        chosen.add(case)
    return chosen


def _subject(case: str) -> str:
    return case.partition("[")[2].rstrip("]").partition("-")[0]
