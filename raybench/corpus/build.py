"""Build a corpus from text files and a tokenizer.json: `raybench corpus build`.

Text is read and tokenised in blocks, so a book of any size passes through little memory; what is kept is
the ids (4 bytes a token) and where each token begins in the text (8 bytes). Blocks are cut at line
ends where there are any, so a block's tokens are those of the whole text but for the few tokenizers that
merge over line ends. Runs wherever the user has the files; needs the package `tokenizers`.
"""

from __future__ import annotations

import codecs
import hashlib
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
import orjson
from numpy.typing import NDArray

from raybench.corpus.id_files import problem
from raybench.corpus.rendered import escaped_lengths
from raybench.corpus.tokens import IDS_FILE, META_FILE, META_FORMAT, TEXT_FILE, TEXT_STARTS_FILE, ids_sha256
from raybench.errors import ConfigError

#: Bytes of text that go to the tokenizer at a time, and blocks that it works on in parallel.
BLOCK_BYTES = 256 * 1024
BLOCKS_AT_ONCE = 16


@dataclass(frozen=True)
class BuiltCorpus:
    """What was built. sha256: `corpus.tokens.ids_sha256` of its ids."""

    tokens: int
    sha256: str


def build_corpus(
    files: Sequence[Path], tokenizer_json: Path, out: Path, *, block_bytes: int = BLOCK_BYTES
) -> BuiltCorpus:
    """Tokenise UTF-8 files, one after the other, into the new directory `out`.

    No special tokens are added. The directory appears only when it is complete. Raises ConfigError for a
    missing package, tokenizer or file, for text that is not UTF-8 (with the byte offset), for an empty
    result, and if `out` exists or cannot be written.
    """
    if not files:
        raise ConfigError("corpus build", "no text files were named")
    if out.exists():
        raise problem(out, "exists already", way_out="name another directory, or remove this one")
    tokenizer = _load_tokenizer(tokenizer_json)
    beside = out.with_name(f".{out.name}.new")
    shutil.rmtree(beside, ignore_errors=True)
    try:
        beside.mkdir(parents=True)
        ids, starts = _tokenise(files, tokenizer, beside / TEXT_FILE, block_bytes)
        if len(ids) == 0:
            raise problem(files[0], "the files give no tokens", value=f"{len(files)} files")
        np.save(beside / IDS_FILE, ids)
        np.save(beside / TEXT_STARTS_FILE, starts)
        sha256 = ids_sha256(ids)
        meta = {
            "format": META_FORMAT,
            "tokens": len(ids),
            "sha256": sha256,
            "tokenizer_sha256": hashlib.sha256(tokenizer_json.read_bytes()).hexdigest(),
            "files": [file.name for file in files],
        }
        (beside / META_FILE).write_bytes(orjson.dumps(meta, option=orjson.OPT_INDENT_2) + b"\n")
        beside.rename(out)
    except OSError as error:
        raise problem(out, "cannot be written", str(error.strerror or error)) from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return BuiltCorpus(len(ids), sha256)


def _load_tokenizer(path: Path) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise ConfigError(
            "corpus build", "the package `tokenizers` is not installed; try: pip install 'raybench[corpus]'"
        ) from None
    try:
        data = path.read_bytes()
        content = orjson.loads(data)
        if not isinstance(content, dict) or "model" not in content:
            raise problem(path, "no tokenizer: it has no `model`", allowed="a tokenizer.json (Hugging Face)")
        return Tokenizer.from_buffer(data)
    except (OSError, ValueError) as error:
        raise problem(path, "the tokenizer cannot be read", str(error)) from None


def _tokenise(
    files: Sequence[Path], tokenizer: Any, text_file: Path, block_bytes: int
) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Ids and token starts of all files; their escaped text goes to `text_file`."""
    ids: list[NDArray[np.uint32]] = []
    starts: list[NDArray[np.int64]] = []
    written = 0
    with text_file.open("wb") as text:
        all_blocks = _all_blocks(files, block_bytes)
        while blocks := list(islice(all_blocks, BLOCKS_AT_ONCE)):
            for block, encoding in zip(
                blocks, tokenizer.encode_batch(blocks, add_special_tokens=False), strict=True
            ):
                ids.append(np.array(encoding.ids, np.uint32))
                starts.append(_token_starts(block, encoding.offsets) + written)
                written += text.write(orjson.dumps(block)[1:-1])
    if not ids:
        return np.empty(0, np.uint32), np.zeros(1, np.int64)
    return np.concatenate(ids), np.concatenate([*starts, np.array([written], np.int64)])


def _token_starts(block: str, offsets: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    """Where each token begins in the escaped block, from the tokenizer's character offsets.

    What lies between two tokens (spaces that a tokenizer drops) belongs to the first of them, and what
    lies before a block's first token to that token.
    """
    bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(escaped_lengths(block))])
    characters = np.array([start for start, _ in offsets], np.int64)
    characters[:1] = 0
    return bounds[np.maximum.accumulate(characters)]


def _all_blocks(files: Sequence[Path], block_bytes: int) -> Iterator[str]:
    for path in files:
        try:
            with path.open("rb") as file:
                yield from _blocks(path, file, block_bytes)
        except OSError as error:
            raise problem(path, "cannot be read", str(error.strerror)) from None


def _blocks(path: Path, file: IO[bytes], block_bytes: int) -> Iterator[str]:
    """The text of one file, about `block_bytes` at a time, cut behind a line end where there is one."""
    decoder = codecs.getincrementaldecoder("utf-8")("strict")
    kept = ""
    offset = 0
    final = False
    while not final:
        data = file.read(block_bytes)
        final = not data
        undecoded = len(decoder.getstate()[0])
        try:
            kept += decoder.decode(data, final)
        except UnicodeDecodeError as error:
            raise problem(
                path,
                f"not UTF-8 at byte offset {offset - undecoded + error.start}",
                value=f"byte 0x{error.object[error.start]:02x} ({error.reason})",
                way_out="convert it, for example with iconv -f latin1 -t utf-8",
            ) from None
        offset += len(data)
        cut = len(kept) if final else (kept.rfind("\n") + 1 or len(kept))
        if cut:
            yield kept[:cut]
        kept = kept[cut:]
