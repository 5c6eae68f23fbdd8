"""Both languages say the same things: no placeholder, column or name is missing from one of them."""

import string
from collections.abc import Iterator

import pytest

from raybench.report.text import ENGLISH
from raybench.report.text_zh import CHINESE


def leaves(value: object, path: str = "") -> Iterator[tuple[str, str]]:
    """(path, text) of every text that a language says itself, and does not have of the English."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, f"{path}[{key}]")
    elif isinstance(value, tuple):
        for index, inner in enumerate(value):
            yield from leaves(inner, f"{path}[{index}]")
    elif isinstance(value, str):
        yield path, value
    else:
        for name in vars(type(value)):
            if not name.startswith("__"):
                yield from leaves(getattr(value, name), f"{path}.{name}")


ENGLISH_LEAVES, CHINESE_LEAVES = dict(leaves(ENGLISH)), dict(leaves(CHINESE))


def placeholders(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


def test_both_languages_have_the_same_texts() -> None:
    assert ENGLISH_LEAVES.keys() == CHINESE_LEAVES.keys()


@pytest.mark.parametrize("path", ENGLISH_LEAVES)
def test_both_languages_fill_in_the_same_things(path: str) -> None:
    english, chinese = placeholders(ENGLISH_LEAVES[path]), placeholders(CHINESE_LEAVES[path])
    if path.startswith(".growth"):  # a sentence may leave out what the other language needs to say
        assert chinese and english
    else:
        assert english == chinese


def test_no_text_is_empty() -> None:
    assert all(text.strip() for text in (*ENGLISH_LEAVES.values(), *CHINESE_LEAVES.values()))


def test_the_field_s_terms_stand_in_both() -> None:
    for term in ("Input TPS", "Output TPS", "TTFT P95", "TPOT P95"):
        assert term in ENGLISH.result_columns
        assert term in CHINESE.result_columns
