"""The recipe for a store of the log in docs/contributing.md names every file that knows which store is used."""

from __future__ import annotations

import re

from project_paths import DOCS, ROOT

PRODUCT = ("actors", "runtime", "bench", "spark")


def recipe() -> str:
    text = (DOCS / "contributing.md").read_text()
    return text.split("## Add a store for the log\n")[1].split("\n## ")[0]


def files_that_name(pattern: str, *folders: str) -> set[str]:
    return {
        str(path.relative_to(ROOT))
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
        if re.search(pattern, path.read_text())
    }


def test_files_of_the_product_that_name_a_store_are_those_of_the_recipe() -> None:
    named = files_that_name(r"\b(LocalStore|OwnsAll)\b", *PRODUCT)
    assert named == set(re.findall(r"`(runtime/[\w/]+\.py)`", recipe()))


def test_toy_store_is_one_file_and_its_tests() -> None:
    """Nothing in the product and no other test knows it, except this one."""
    named = files_that_name(r"\b(ToyStore|toy_store)\b", *PRODUCT, "tests")
    listed = set(re.findall(r"`(tests/[\w/]+\.py)`", recipe()))
    assert named - {"tests/project/test_store_recipe.py"} == listed
    assert listed == {
        *("tests/log/test_toy_store.py", "tests/log/toy_store.py"),
        *("tests/embed/test_embedded_store.py", "tests/simulation/shared_log.py"),
    }
