"""YAML text -> plain values that mean what they look like, with the line and the raw text of each.

Only PyYAML's composer is used, none of its YAML 1.1 guesses: `true`, `false` and `null`, plain decimal
whole numbers and plain decimals are typed; everything else is text, so that `on`, `010`, `1:30`, `1e3`
or `16_384` reach the schema as they were written and are refused there. Keys are always text and may
not repeat. Anchors and aliases are allowed, tags and merge keys are not. Runs wherever a file is read;
knows nothing of scenarios.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import yaml
from yaml import MarkedYAMLError
from yaml.composer import Composer
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.parser import Parser
from yaml.reader import Reader, ReaderError
from yaml.resolver import BaseResolver
from yaml.scanner import Scanner

from raybench.errors import ConfigError, ConfigProblem

KeyPath: TypeAlias = tuple[str | int, ...]

DEPTH_MAX = 40
VALUES_MAX = 100_000
_RAW_MAX = 60

#: They fit into 64 bits, so that no number here can overflow or become infinite.
DIGITS_MAX = 18
_WHOLE = re.compile(rf"-?(0|[1-9][0-9]{{0,{DIGITS_MAX - 1}}})")
_DECIMAL = re.compile(rf"{_WHOLE.pattern}\.[0-9]{{1,{DIGITS_MAX}}}")
_CONSTANTS: dict[str, object] = {"true": True, "false": False, "null": None, "": None}
_OTHER_NULLS = ("~", "Null", "NULL")
#: (what PyYAML says, its usual cause); the first that fits.
_WAYS_OUT = (
    ("'\\t'", "indent with spaces, not with tabs"),
    ("another document", "keep one document in a file (no `---` between two)"),
    ("mapping values are not allowed", "check the indentation, and quote a text that contains `: `"),
    ("sequence entries are not allowed", "begin each entry with `- ` on a line of its own"),
    ("escape character", "write a backslash twice, or use single quotes"),
    ("quoted scalar", "end it with the quote that it begins with"),
    ("flow sequence", "close the list with `]`, and quote a text that contains `: ` or `,`"),
    ("flow mapping", "close the block with `}`, and quote a text that contains `: `, `,` or braces"),
    ("block collection", "indent the entries of one list, and the keys of one entry, alike"),
    ("block mapping", "indent the keys of one block alike, and quote a text with quotes in it as a whole"),
    ("simple key", "write `key: value`"),
    ("cannot start any token", "quote a text that begins with it"),
    ("undefined alias", "name a value with `&` before its first `*`"),
)


@dataclass(frozen=True)
class Document:
    """One YAML document.

    value: what it says (dict, list, str, int, float, bool, None).
    lines: the 1-based line of every path. raw: the text of every value as it was written, cut to one line.
    traps: paths of unquoted texts that other YAML readers take for a number, a truth value or a date.
    unreadable: paths whose value is None only because nothing could be made of it.
    problems: what is wrong already without any schema.
    """

    value: object
    lines: dict[KeyPath, int] = field(default_factory=dict)
    raw: dict[KeyPath, str] = field(default_factory=dict)
    traps: set[KeyPath] = field(default_factory=set)
    unreadable: set[KeyPath] = field(default_factory=set)
    problems: list[ConfigProblem] = field(default_factory=list)


def format_path(path: KeyPath) -> str:
    """`("workloads", 0, "concurrency")` -> `workloads[0].concurrency`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def read_yaml(text: str, source: str) -> Document:
    """Read one document. Raises ConfigError when the text as a whole cannot be read."""
    try:
        _refuse_tags_and_depth(text, source)
        node = _Composer(text).get_single_node()
    except yaml.YAMLError as error:
        raise ConfigError(source, _syntax_problem(error, text)) from error
    if node is None:
        raise ConfigError(source, ConfigProblem("the file is empty"))
    return _Reading(text, source).document(node)


class _Composer(Reader, Scanner, Parser, Composer, BaseResolver):
    """PyYAML's composer without implicit types: every plain scalar stays text."""

    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)
        BaseResolver.__init__(self)


def _refuse_tags_and_depth(text: str, source: str) -> None:
    """What must be seen before composing, which forgets an explicit `!!str` and recurses into depth."""
    parser, depth = _Composer(text), 0
    while parser.check_event():
        event = parser.get_event()  # type: ignore[no-untyped-call]
        line = event.start_mark.line + 1
        if getattr(event, "tag", None) is not None:
            raw = text[event.start_mark.index :].split("\n", 1)[0][:_RAW_MAX]
            problem = ConfigProblem("YAML tags are not allowed", value=raw, way_out="remove the tag", line=line)
            raise ConfigError(source, problem)
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEPTH_MAX:
                raise ConfigError(source, ConfigProblem(f"nested deeper than {DEPTH_MAX} levels", line=line))
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _syntax_problem(error: yaml.YAMLError, text: str) -> ConfigProblem:
    """PyYAML's own words, with where the thing began that it speaks of, and what is usually the cause."""
    if isinstance(error, ReaderError):
        code = error.character if isinstance(error.character, int) else ord(error.character)
        before = text[: error.position]
        return ConfigProblem(f"not text: the control character U+{code:04X}", line=before.count("\n") + 1)
    assert isinstance(error, MarkedYAMLError)
    begun = f" (from line {error.context_mark.line + 1})" if error.context_mark is not None else ""
    what = (f"{error.context}{begun}: " if error.context else "") + (error.problem or "")
    way_out = next((told for part, told in _WAYS_OUT if part in what), None)
    line = error.problem_mark.line + 1 if error.problem_mark is not None else None
    return ConfigProblem(f"not valid YAML: {what}", way_out=way_out, line=line)


class _Reading:
    """One pass over the composed nodes."""

    def __init__(self, text: str, source: str) -> None:
        self._text = text
        self._source = source
        self._found = Document(None)
        self._open: list[Node] = []
        self._values = 0

    def document(self, root: Node) -> Document:
        value = self._value(root, (), root.start_mark.line + 1)
        found = self._found
        return replace(found, value=value)

    def _value(self, node: Node, path: KeyPath, line: int) -> object:
        self._values += 1
        if self._values > VALUES_MAX:
            raise ConfigError(self._source, ConfigProblem(f"more than {VALUES_MAX} values (aliases counted out)"))
        if any(node is outer for outer in self._open):
            self._found.unreadable.add(path)
            self._complain("an alias that contains itself", path, line)
            return None
        self._found.lines[path] = line
        self._found.raw[path] = self._raw(node)
        if isinstance(node, ScalarNode):
            return self._scalar(node, path, line)
        self._open.append(node)
        value = self._mapping(node, path) if isinstance(node, MappingNode) else self._list(node, path)
        self._open.pop()
        return value

    def _scalar(self, node: ScalarNode, path: KeyPath, line: int) -> object:
        text: str = node.value
        if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
            self._complain("half a character (a surrogate)", path, line, self._raw(node), "write it as it is")
            return None
        if node.style is not None:
            return text
        if text in _OTHER_NULLS:
            self._found.unreadable.add(path)
            self._complain("not a way to say nothing here", path, line, text, "null, or leave the line out")
            return None
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        if _WHOLE.fullmatch(text):
            return int(text)
        if _DECIMAL.fullmatch(text):
            return float(text)
        if looks_typed(text):
            self._found.traps.add(path)
        return text

    def _list(self, node: Node, path: KeyPath) -> list[object]:
        assert isinstance(node, SequenceNode)
        return [
            self._value(item, (*path, index), item.start_mark.line + 1) for index, item in enumerate(node.value)
        ]

    def _mapping(self, node: MappingNode, path: KeyPath) -> dict[str, object]:
        values: dict[str, object] = {}
        for key, item, line in self._entries(node, path):
            place = (*path, key)
            if key in values:
                first = self._found.lines[place]
                self._complain(
                    "key given twice", place, line, self._raw(item), f"keep one; the first is in line {first}"
                )
            else:
                values[key] = self._value(item, place, line)
        return values

    def _entries(self, node: MappingNode, path: KeyPath) -> Iterator[tuple[str, Node, int]]:
        for key, item in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, ScalarNode):
                self._complain("a key must be a plain word", path, line, self._raw(key))
            elif key.value == "<<" and key.style is None:
                self._complain(
                    "merge keys are not supported", path, line, "<<", "an alias for a whole value, or repeat"
                )
            else:
                yield key.value, item, line

    def _raw(self, node: Node) -> str:
        """The node as it stands in the file, on one line."""
        if isinstance(node, ScalarNode) and node.start_mark.index == node.end_mark.index:
            return "nothing"
        text = self._text[node.start_mark.index : node.end_mark.index].strip()
        first = text.split("\n", 1)[0].rstrip()
        cut = len(first) > _RAW_MAX or first != text
        return first[:_RAW_MAX] + " ..." if cut else first

    def _complain(
        self, message: str, path: KeyPath, line: int, value: str | None = None, way_out: str | None = None
    ) -> None:
        self._found.problems.append(
            ConfigProblem(message, path=format_path(path), value=value, way_out=way_out, line=line)
        )


def looks_typed(text: str) -> bool:
    """Whether another YAML reader would take this unquoted text for something else than text."""
    guesses = yaml.SafeLoader.yaml_implicit_resolvers.get(text[:1], [])
    if any(pattern.match(text) for _, pattern in guesses):
        return True
    try:
        float(text)
    except ValueError:
        return False
    return True
