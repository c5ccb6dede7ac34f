"""The part of long tables that ``make test`` runs."""

from __future__ import annotations

from tests.architecture.sources import ROOT
from tests.case_sampling import OPTIMISED_FOLDERS, SHARE, WHOLE, compiles_quickly, sampled

LONG = [f"tests/core/test_a.py::test_table[op{i}-float{j}]" for i in range(30) for j in range(40)]


def test_short_tables_run_as_a_whole() -> None:
    """Up to a number of cases nothing is left out, and tests without cases run."""
    short = [f"tests/core/test_a.py::test_some[{i}]" for i in range(WHOLE)]
    alone = ["tests/core/test_a.py::test_one", "tests/core/test_b.py::test_one"]

    assert {*short, *alone} == sampled([*short, *alone])


def test_each_subject_of_a_long_table_is_there() -> None:
    """A quarter of the cases, and each operation at least once."""
    chosen = sampled(LONG)

    assert len(LONG) // SHARE == len(chosen)
    assert {f"op{i}" for i in range(30)} == {case.split("[")[1].split("-")[0] for case in chosen}


def test_many_subjects_are_all_there() -> None:
    """Where subjects are more than the share, the share gives way."""
    many = [f"tests/core/test_a.py::test_table[op{i}-{j}]" for i in range(90) for j in range(2)]

    assert {f"op{i}" for i in range(90)} == {
        case.split("[")[1].split("-")[0] for case in sampled(many)
    }


def test_choice_depends_on_ids_alone() -> None:
    """The order of collection does not matter: workers choose alike, and so does the next run."""
    assert sampled(LONG) == sampled(reversed(LONG))


def test_pages_and_rules_are_never_left_out() -> None:
    """Cases that are files, pages or classes."""
    pages = [f"tests/doctests/test_doctests.py::test_examples[{i}]" for i in range(500)]

    assert set(pages) == sampled(pages)


def test_what_is_compiled_quickly() -> None:
    """No test about compiled programs; of the others most, but not all."""
    files = [str(p.relative_to(ROOT)) for p in (ROOT / "tests" / "core").rglob("test_*.py")]
    quick = [file for file in files if compiles_quickly(f"{file}::test_it")]

    assert 0.4 < len(quick) / len(files) < 0.8
    assert not [file for file in quick if "runtime" in file or "ulps" in file]
    assert not [folder for folder in OPTIMISED_FOLDERS if not (ROOT / folder).is_dir()]
