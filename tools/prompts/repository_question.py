#!/usr/bin/env python3
"""Make the long prompt of the coding set: much source text of this repository, then a question across files.

    repository_question.py raybench scenarios/prompts/coding/s5_repository.md [--bytes 190000]

The shipped file is kept as it was made once: a prompt that changed with the code could not be compared over time.
"""

from __future__ import annotations

import argparse
from pathlib import Path

QUESTION = """

---

The text above is a part of the source of a load generator. Answer from this text alone, and name file and function for each statement.

1. Follow one request of a closed loop from the moment at which a slot is free to the row on disk: which functions of which files does it pass, in which order, and where is each time stamp taken?
2. Which module decides that an attempt is repeated on fresh text, by which rule, and where is the number of attempts bounded?
3. A worker process dies in the middle of an attempt. Where is that noticed, what is recorded, and which check makes the point void?
4. Propose the smallest change that would let a workload send each of its requests twice and compare the two answers. List the functions that you would touch, with the changed lines.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--bytes", type=int, default=190_000, help="about so long, the question included")
    options = parser.parse_args()
    parts: list[str] = []
    size = len(QUESTION.encode())
    for room in ("load", "protocol", "engines", "scenario", "records", "analysis"):
        for path in sorted((options.source / room).glob("*.py")):
            text = f"### {path.as_posix()}\n\n```python\n{path.read_text(encoding='utf-8')}```\n\n"
            if size + len(text.encode()) > options.bytes:
                continue
            parts.append(text)
            size += len(text.encode())
    options.output.write_bytes("".join([*parts, QUESTION.lstrip("\n")]).encode())
    print(f"{options.output}: {options.output.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
