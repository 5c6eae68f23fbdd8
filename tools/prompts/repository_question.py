#!/usr/bin/env python3
"""Make the long prompt of the coding set: much source text of this repository, then a question across files.

    repository_question.py raybench scenarios/prompts/coding/s5_repository.md [--bytes 190000]

The shipped file is kept as it was made once: a prompt that changed with the code could not be compared over time.
"""

from __future__ import annotations

import argparse
from pathlib import Path

#: What is asked at the end.
QUESTION = Path(__file__).with_name("question.md")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--bytes", type=int, default=190_000, help="about so long, the question included")
    options = parser.parse_args()
    parts: list[str] = []
    question = QUESTION.read_text(encoding="utf-8")
    size = len(question.encode())
    for room in ("load", "protocol", "engines", "scenario", "records", "analysis"):
        for path in sorted((options.source / room).glob("*.py")):
            text = f"### {path.as_posix()}\n\n```python\n{path.read_text(encoding='utf-8')}```\n\n"
            if size + len(text.encode()) > options.bytes:
                continue
            parts.append(text)
            size += len(text.encode())
    options.output.write_bytes("".join([*parts, question]).encode())
    print(f"{options.output}: {options.output.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
