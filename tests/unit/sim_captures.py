"""The real engine's captured answers, as the unit tests of `raybench/sim` compare with them."""

import gzip
from pathlib import Path

GOLDEN = Path(__file__).parents[1] / "golden"


def body_of(path: str) -> bytes:
    """The body of a captured answer under tests/golden, HTTP chunk framing removed."""
    file = GOLDEN / path
    raw = file.read_bytes() if file.exists() else gzip.decompress(Path(f"{file}.gz").read_bytes())
    head, _, body = raw.partition(b"\r\n\r\n")
    if b"chunked" not in head.lower():
        return body
    parts = []
    while body:
        size, _, body = body.partition(b"\r\n")
        parts.append(body[: int(size, 16)])
        body = body[int(size, 16) + 2 :]
    return b"".join(parts)


def main(name: str) -> bytes:
    """An answer of SGLang 0.5.23 in its main set-up."""
    return body_of(f"captures/sglang-0.5.23-cpu/main/{name}.resp")
