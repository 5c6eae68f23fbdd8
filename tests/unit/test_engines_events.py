"""Framing of server-sent events: nothing depends on where reads begin and end."""

from __future__ import annotations

from engine_captures import FIVE_WRITES
from hypothesis import given
from hypothesis import strategies as st

from raybench.engines.events import EventReader

MAX = 1 << 20


def payloads(reads: list[bytes], event_bytes_max: int = MAX) -> tuple[list[bytes], bool]:
    reader = EventReader(event_bytes_max)
    found = [payload for data in reads for payload in reader.feed(data)]
    return found + reader.close(), reader.overflowed


def one_byte_each(data: bytes) -> list[bytes]:
    return [data[i : i + 1] for i in range(len(data))]


def test_o_s1_the_five_writes_give_the_events_of_one_write() -> None:
    expected = [
        b'{"choices":[{"index":0,"text":"a"}]}',
        b'{"choices":[{"index":0,"text":" b"}]}',
        b'{"choices":[{"index":0,"text":" "}]}',
        b"[DONE]",
    ]
    whole = b"".join(FIVE_WRITES)
    assert payloads(list(FIVE_WRITES)) == (expected, False)
    assert payloads([whole]) == (expected, False)
    assert payloads(one_byte_each(whole)) == (expected, False)


def test_an_event_is_given_back_by_the_read_that_completes_it() -> None:
    reader = EventReader(MAX)
    assert reader.feed(b"data: 1\n") == []
    assert reader.feed(b"\ndata: 2") == [b"1"]
    assert reader.feed(b"\n\n") == [b"2"]


def test_a_blank_line_made_of_cr_completes_an_event_at_once() -> None:
    reader = EventReader(MAX)
    assert reader.feed(b"data: 1\r\n\r") == [b"1"]
    assert reader.feed(b"\ndata: 2\r\n\r\n") == [b"2"]


def test_lf_crlf_and_cr_are_line_ends() -> None:
    for end in (b"\n", b"\r\n", b"\r"):
        stream = b"data: a" + end + b"data:b" + end + end + b"data: c" + end + end
        assert payloads([stream])[0] == [b"a\nb", b"c"]
        assert payloads(one_byte_each(stream))[0] == [b"a\nb", b"c"]


def test_comments_and_other_fields_are_skipped() -> None:
    stream = (
        b": keep-alive\n\n:\n\nevent: token\nid: 7\nretry: 10\ndata: a\n\n"
        b"event: ping\n\ndata:\n\ndata\n\ndatax: b\n\n: hm\ndata: c\n\n"
    )
    assert payloads([stream])[0] == [b"a", b"c"]


def test_only_one_space_after_the_colon_is_removed() -> None:
    assert payloads([b"data:  a \n\n"])[0] == [b" a "]


def test_a_last_event_without_its_blank_line_is_given_back_at_the_end() -> None:
    assert payloads([b"data: a\n\ndata: b"])[0] == [b"a", b"b"]
    assert payloads([b"data: a\n\ndata: b\n"])[0] == [b"a", b"b"]


def test_a_character_split_over_reads_stays_whole() -> None:
    stream = "data: é漢😀\n\n".encode()
    assert payloads(one_byte_each(stream))[0] == ["é漢😀".encode()]


def test_o_n3_an_event_of_two_mebibytes_passes_and_one_over_the_limit_does_not() -> None:
    size = 2 * 1024 * 1024
    stream = b"data: " + b"a" * size + b"\n\ndata: b\n\n"
    reads = [stream[i : i + 65536] for i in range(0, len(stream), 65536)]
    found, overflowed = payloads(reads, size + 6)
    assert ([len(payload) for payload in found], overflowed) == ([size, 1], False)
    assert payloads(reads, size + 5) == ([], True)


def test_the_line_end_of_an_event_does_not_count_to_its_limit() -> None:
    assert payloads(one_byte_each(b"data: a\n\ndata: b\n\n"), 7) == ([b"a", b"b"], False)
    assert payloads(one_byte_each(b"data: a\n\n"), 6) == ([], True)


def test_the_limit_holds_for_an_event_that_never_ends_and_keeps_nothing_of_it() -> None:
    reader = EventReader(100)
    assert reader.feed(b"data: a\n\n") == [b"a"]
    for _ in range(50):
        assert reader.feed(b"x" * 30) == []
    assert reader.overflowed
    assert reader.feed(b"\n\ndata: b\n\n") == []
    assert reader.close() == []


FIELD = st.sampled_from(
    [b"data:", b"data: ", b"data:  ", b": ", b":", b"event: ", b"id:", b"retry: ", b"dat", b"data"]
)
LINE = st.tuples(FIELD, st.text(alphabet='ab {}"é:', max_size=6)).map(lambda pair: pair[0] + pair[1].encode())
STREAM = st.lists(
    st.tuples(st.one_of(LINE, st.just(b"")), st.sampled_from([b"\n", b"\r\n", b"\r"])), max_size=24
).map(lambda lines: b"".join(line + end for line, end in lines))


def by_the_standard(stream: bytes) -> list[bytes]:
    """The algorithm of the standard, line by line on the whole stream; a last open event counts."""
    found: list[bytes] = []
    data: list[bytes] = []
    text = stream.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    for line in [*text.split(b"\n"), b""]:
        if not line:
            if b"\n".join(data):
                found.append(b"\n".join(data))
            data = []
        elif line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
    return found


@given(STREAM, st.sampled_from([b"", b"data: tail"]), st.data())
def test_framing_is_independent_of_read_boundaries(stream: bytes, tail: bytes, draw: st.DataObject) -> None:
    stream += tail
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    reads = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    expected = by_the_standard(stream)
    assert payloads([stream]) == (expected, False)
    assert payloads(reads) == (expected, False)
    assert payloads(one_byte_each(stream)) == (expected, False)


@given(STREAM, st.integers(1, 40), st.data())
def test_the_limit_is_independent_of_read_boundaries(
    stream: bytes, event_bytes_max: int, draw: st.DataObject
) -> None:
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    reads = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    whole = payloads([stream], event_bytes_max)
    assert payloads(reads, event_bytes_max) == whole
    assert payloads(one_byte_each(stream), event_bytes_max) == whole
