"""The client that most tools have: aiohttp, one task a stream, line by line, JSON for each. One JSON line out.

    python lines.py PORT STREAMS REQUESTS TOKENS INPUT_TOKENS

Its clock starts before `session.post`, as theirs does: connecting and queueing in the client are called TTFT.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time

import aiohttp


async def main(port: int, streams: int, requests: int, tokens: int, input_tokens: int) -> None:
    body = {
        "model": "mock",
        "prompt": list(range(input_tokens)),
        "max_tokens": tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    ttft: list[float] = []
    left = requests
    before = resource.getrusage(resource.RUSAGE_SELF)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as session:

        async def slot() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                begin, first = time.perf_counter(), None
                async with session.post(f"http://127.0.0.1:{port}/v1/completions", json=body) as response:
                    async for line in response.content:
                        if not line.startswith(b"data:") or line.strip() == b"data: [DONE]":
                            continue
                        choices = json.loads(line[5:])["choices"]
                        if choices and choices[0]["text"] and first is None:
                            first = time.perf_counter()
                            ttft.append((first - begin) * 1e3)

        await asyncio.gather(*(slot() for _ in range(streams)))
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    ttft.sort()
    told = {f"ttft_ms_p{percent}": ttft[len(ttft) * percent // 100] for percent in (50, 99)}
    print(json.dumps({"cpu_s": cpu_s, "completed": len(ttft), **told}))


if __name__ == "__main__":
    asyncio.run(main(*(int(word) for word in sys.argv[1:])))
