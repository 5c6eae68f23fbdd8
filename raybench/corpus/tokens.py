"""The corpus of a run: token ids, their sha256, and the text where there is one.

Loaded once, by the coordinator, and shared through Ray's object store. `ids` stays memory-mapped when
the file holds uint32 (`.npy`, a built directory).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import orjson
from numpy.typing import NDArray

from raybench.corpus.id_files import BLOCK_IDS, NPY_ERRORS, problem, read_id_file, reader_of
from raybench.corpus.rendered import Rendered
from raybench.corpus.synthetic import synthetic_ids, synthetic_text
from raybench.scenario.schema import Corpus, SyntheticCorpus

#: Files of a directory made by `raybench corpus build`.
IDS_FILE = "ids.npy"
TEXT_FILE = "text.escaped"
TEXT_STARTS_FILE = "text_starts.npy"
META_FILE = "meta.json"
META_FORMAT = "raybench corpus 1"


@dataclass(frozen=True, eq=False)
class TokenCorpus:
    """ids: uint32, shape (tokens,). sha256: hex, over the ids as little-endian uint32.

    name: for people, in the manifest and in messages. text: the same tokens as JSON-escaped text, None
    where only ids are known (text routes as chat then have nothing to send).
    """

    ids: NDArray[np.uint32]
    sha256: str
    name: str
    text: Rendered | None = None

    @property
    def tokens(self) -> int:
        return len(self.ids)


def load_corpus(corpus: Corpus, base: Path) -> TokenCorpus:
    """The corpus that a scenario names; a relative path starts at `base`, the scenario's folder.

    Raises ConfigError, with the file and the way out, for whatever cannot serve as token ids.
    """
    if corpus.synthetic is not None:
        return _synthetic(corpus.synthetic)
    assert corpus.path is not None, "the scenario's schema asks for one of path and synthetic"
    path = existing(corpus.path, base)
    if path.is_dir():
        return _load_built(path)
    ids = read_id_file(path)
    return TokenCorpus(ids, ids_sha256(ids), path.name)


def existing(path: str, base: Path) -> Path:
    """Where the corpus lies that a scenario in `base` names.

    Raises ConfigError when nothing is there, or a file that by its name or size cannot be read.
    """
    whole = base / path
    if not whole.exists():
        raise problem(
            whole,
            "no such corpus file or directory on this host",
            value=path,
            way_out="copy it to the coordinator's node, build it with `raybench corpus build`, or rehearse "
            "with `corpus: {synthetic: {}}`",
        )
    if not whole.is_dir():
        reader_of(whole)
    return whole


def ids_sha256(ids: NDArray[np.uint32]) -> str:
    """Identity of a token sequence, whatever file it came in."""
    digest = hashlib.sha256()
    for first in range(0, len(ids), BLOCK_IDS):
        digest.update(np.ascontiguousarray(ids[first : first + BLOCK_IDS], dtype="<u4").data)
    return digest.hexdigest()


def _synthetic(settings: SyntheticCorpus) -> TokenCorpus:
    ids = synthetic_ids(settings)
    name = f"synthetic-{settings.tokens}x{settings.vocabulary}-seed{settings.seed}"
    return TokenCorpus(ids, ids_sha256(ids), name, synthetic_text(ids, settings.vocabulary))


def _load_built(folder: Path) -> TokenCorpus:
    """A directory made by `raybench corpus build`, checked against its own sha256."""
    rebuild = "build it again with `raybench corpus build`"
    try:
        meta = orjson.loads((folder / META_FILE).read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        raise problem(folder / META_FILE, "cannot be read", str(error), way_out=rebuild) from None
    if not isinstance(meta, dict) or meta.get("format") != META_FORMAT:
        raise problem(folder / META_FILE, "not a corpus of this version", allowed=META_FORMAT, way_out=rebuild)
    ids = read_id_file(folder / IDS_FILE)
    sha256 = ids_sha256(ids)
    if sha256 != meta.get("sha256"):
        raise problem(
            folder / IDS_FILE, "changed since it was built", sha256, f"sha256 {meta.get('sha256')}", rebuild
        )
    return TokenCorpus(ids, sha256, folder.name, _load_text(folder, len(ids), rebuild))


def _load_text(folder: Path, tokens: int, rebuild: str) -> Rendered:
    try:
        starts = np.asarray(np.load(folder / TEXT_STARTS_FILE, mmap_mode="r", allow_pickle=False))
        data = np.asarray(np.memmap(folder / TEXT_FILE, np.uint8, mode="r"))
    except NPY_ERRORS as error:
        raise problem(folder, "its text cannot be read", str(error), way_out=rebuild) from None
    if starts.dtype != np.int64 or starts.shape != (tokens + 1,) or int(starts[-1]) != len(data):
        raise problem(folder / TEXT_STARTS_FILE, "does not fit the ids and the text", way_out=rebuild)
    return Rendered(data, starts)
