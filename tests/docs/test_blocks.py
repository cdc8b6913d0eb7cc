"""Each block of the pages is run by a test, or says why not."""

from __future__ import annotations

from tests.docs.blocks import ROOT, list_blocks, list_parts, name_part, read_tried

AGAIN = "\nIs it run? Then: python -m tests.docs.tried TESTS. If not: <!-- not run: why -->"


def test_each_part_of_a_block_is_run_by_a_test_or_says_why_not() -> None:
    tried = read_tried()
    by_page = {
        page: {name for one in tests.values() for name in one} for page, tests in tried.items()
    }
    missing = [
        f"{block.page}:{block.line}: {part}"
        for block, part in list_parts()
        if name_part(part) not in by_page.get(block.page, ())
    ]
    assert not missing, "\n".join([*missing, AGAIN])


def test_the_tests_that_run_them_are_there() -> None:
    named = {test for tests in read_tried().values() for test in tests}
    for test in named:
        file, _, function = test.partition("[")[0].partition("::")
        assert f"def {function.rpartition('::')[2]}(" in (ROOT / file).read_text(), test


def test_the_reason_why_a_block_is_not_run_is_a_sentence_of_its_own() -> None:
    reasons = [block.reason for block in list_blocks() if block.reason is not None]
    assert all(len(reason.split()) >= 3 for reason in reasons), reasons
