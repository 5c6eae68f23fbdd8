"""YAML text is read as what it looks like, or refused."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from raybench.errors import ConfigError
from raybench.scenario.yamltext import DEPTH_MAX, VALUES_MAX, format_path, read_yaml


def value_of(text: str) -> object:
    document = read_yaml(f"k: {text}\n", "f.yaml")
    assert document.problems == []
    assert isinstance(document.value, dict)
    return document.value["k"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("64", 64),
        ("-1", -1),
        ("999999999999999999", 999999999999999999),
        ("0.5", 0.5),
        ("64.0", 64.0),
        ("-0.25", -0.25),
        ("true", True),
        ("false", False),
        ("null", None),
        ("", None),
    ],
)
def test_what_looks_like_a_number_a_truth_value_or_nothing_is_one(text: str, value: object) -> None:
    assert value_of(text) == value
    assert type(value_of(text)) is type(value)


UNTYPED = [
    "on",
    "off",
    "yes",
    "no",
    "True",
    "FALSE",
    "010",
    "08",
    "0x10",
    "0o7",
    "1:30",
    "12:30:00",
    "1e3",
    "1.5e3",
    "16_384",
    "1_0.5",
    ".5",
    "5.",
    "+5",
    ".inf",
    "-.inf",
    ".nan",
    "2026-01-01",
    "16k",
    "1000000000000000000000",
]


@pytest.mark.parametrize("text", UNTYPED)
def test_everything_else_stays_the_text_that_was_written(text: str) -> None:
    assert value_of(text) == text


@pytest.mark.parametrize("text", ['"64"', "'64'", '"true"', "'null'", '"0.5"'])
def test_quotes_make_text(text: str) -> None:
    assert value_of(text) == text[1:-1]


@pytest.mark.parametrize("text", ["~", "Null", "NULL"])
def test_other_ways_to_write_null_are_refused(text: str) -> None:
    [problem] = read_yaml(f"k: {text}", "f.yaml").problems
    assert (problem.path, problem.value, problem.line) == ("k", text, 1)
    assert problem.way_out is not None
    assert "null" in problem.way_out


def test_each_value_has_its_line_and_its_raw_text() -> None:
    document = read_yaml('a:\n  - x\n  - b: "64"\n    c: [1,\n      2]\nd: 1\n', "f.yaml")
    assert document.value == {"a": ["x", {"b": "64", "c": [1, 2]}], "d": 1}
    assert document.lines[("a", 0)] == 2
    assert document.lines[("a", 1, "b")] == 3
    assert document.lines[("a", 1, "c", 1)] == 5
    assert document.raw[("a", 1, "b")] == '"64"'
    assert document.raw[("a", 1, "c")] == "[1, ..."
    assert document.lines[("d",)] == 6


def test_keys_are_text_whatever_they_look_like() -> None:
    assert read_yaml("{1: a, on: b, null: c, 010: d}", "f").value == {
        "1": "a",
        "on": "b",
        "null": "c",
        "010": "d",
    }


def test_half_a_character_is_refused_since_no_file_can_hold_it() -> None:
    [problem] = read_yaml('a: "\\ud800"\n', "f.yaml").problems
    assert (problem.path, problem.line, problem.value) == ("a", 1, '"\\ud800"')


def test_a_key_given_twice_is_an_error_at_any_depth() -> None:
    problems = read_yaml("a: 1\nb:\n  - {c: 1, c: 2}\na: 3\n", "f.yaml").problems
    assert [(p.path, p.line, p.value) for p in problems] == [("b[0].c", 3, "2"), ("a", 4, "3")]
    assert all("twice" in p.message for p in problems)
    assert "line 1" in str(problems[1].way_out)


def test_anchors_and_aliases_are_allowed() -> None:
    assert read_yaml("a: &x {n: 1}\nb: *x\n", "f.yaml").value == {"a": {"n": 1}, "b": {"n": 1}}


def test_an_alias_inside_itself_is_an_error() -> None:
    assert [p.path for p in read_yaml("a: &x [1, *x]\n", "f.yaml").problems] == ["a[1]"]


@pytest.mark.parametrize("text", ["a: !!int 3", "a: !!str x", "a: ! x", "a: !mine [1]", "!!map {a: 1}"])
def test_tags_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="tags are not allowed") as caught:
        read_yaml(text, "f.yaml")
    assert caught.value.problems[0].line == 1
    assert "!" in str(caught.value.problems[0].value)


def test_merge_keys_and_keys_that_are_no_words_are_refused() -> None:
    problems = read_yaml("<<: {a: 1}\n? [a]\n: 3\n", "f.yaml").problems
    assert ["merge keys" in problems[0].message, "plain word" in problems[1].message] == [True, True]


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("", "the file is empty", None),
        ("# only a comment\n", "the file is empty", None),
        ("a: 1\n---\nb: 2\n", "one document", 2),
        ("a:\n\t- b\n", "spaces", 2),
        ("a: b: c\n", "indentation", 1),
        ("a: 1\nb: [1\nc: 2\n", r"\(from line 2\).*close the list with `]`", 3),
        ("a: {b: 1\nc: 2\n", "close the block with `}`", 2),
        ("a: 'it\nb: 1\n", r"\(from line 1\).*end it with the quote", 3),
        ("a:\n  b: 1\n c: 2\n", "indent the keys of one block alike", 3),
        ("- a: 1\n b: 2\n", "indent the entries of one list", 2),
        ("a: 1\nb\n", "try: write `key: value`", 3),
        ("a: - 1\n", "begin each entry", 1),
        ("a: @x\n", "quote a text", 1),
        ('a: "\\q"\n', "a backslash twice", 1),
        ("a: *nowhere\n", "undefined alias.*`&`", 1),
        ("a: 1\nb: \x00\n", "control character U\\+0000", 2),
        ("[" * (DEPTH_MAX + 1), "nested deeper", 1),
        ("[" * 5000, "nested deeper", 1),
    ],
)
def test_a_text_that_is_no_single_document_is_an_error(text: str, message: str, line: int | None) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        read_yaml(text, "f.yaml")
    assert caught.value.problems[0].line == line


def test_aliases_cannot_blow_a_small_file_up() -> None:
    levels = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    levels += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    with pytest.raises(ConfigError, match=f"more than {VALUES_MAX} values"):
        read_yaml("\n".join(levels), "f.yaml")


def test_texts_that_other_readers_take_for_something_else_are_known() -> None:
    document = read_yaml("a: on\nb: 1e3\nc: plain\nd: '1e3'\ne: 2026-01-01\nf: 16k\n", "f.yaml")
    assert document.traps == {("a",), ("b",), ("e",)}


def test_paths_are_written_as_people_write_them() -> None:
    assert format_path(("workloads", 0, "concurrency", 2)) == "workloads[0].concurrency[2]"
    assert format_path(()) == ""


@given(st.integers(-(10**18) + 1, 10**18 - 1))
def test_every_whole_number_that_fits_64_bits_is_read_back(number: int) -> None:
    assert value_of(str(number)) == number


@given(st.text(alphabet="0123456789.eE+-_:xonfrty ~k", min_size=1, max_size=8))
def test_no_plain_scalar_changes_its_meaning_in_silence(text: str) -> None:
    """Whatever YAML 1.1 would type differently stays text and is known as a trap, or is refused."""
    try:
        document = read_yaml(f"k: {text}", "f.yaml")
        lax = yaml.safe_load(f"k: {text}")["k"]
    except (ConfigError, yaml.YAMLError, ValueError):
        return
    assert isinstance(document.value, dict)
    mine = document.value["k"]
    if type(mine) is not type(lax) or mine != lax:
        assert document.traps or document.problems
