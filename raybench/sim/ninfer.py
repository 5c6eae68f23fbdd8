"""`python -m raybench.sim.ninfer`: a simulated engine of the ninfer kind, as a process of its own.

Chat route only and no streams, with `timings`; a JSONL request log; no flush, no /metrics; prefix reuse unless it
is switched off; a context reservation that fails above a size and says the shortfall. What takes time really takes
it, `--speed` times as fast, so that what it says of itself can be compared with what a client sees.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import sys
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO, get_args

from aiohttp import web

from raybench.errors import EXIT_USAGE, ConfigError
from raybench.sim.ninfer_model import Artifact, Backend, Decoding, Reply, decode, reply
from raybench.sim.process import run
from raybench.sim.questions import text_of
from raybench.sim.replies import json_reply
from raybench.sim.tokens import TOKEN_BYTES, tokenize

BODY_BYTES_MAX = 64 * 1024 * 1024
MIB = 1024 * 1024
#: Exit code of a server whose context does not fit.
EXIT_NO_MEMORY = 1
DEVICES = 2


@dataclass(frozen=True)
class Served:
    """One request: stamps of the process's monotonic clock, in seconds."""

    request_id: int
    prompt_tokens: int
    cached_tokens: int
    reply: Reply
    decoding: Decoding
    begun: float
    prefilled: float
    ended: float

    @property
    def timings(self) -> dict[str, object]:
        """llama.cpp's names."""
        computed = self.prompt_tokens - self.cached_tokens
        prompt_ms, predicted_ms = (self.prefilled - self.begun) * 1e3, (self.ended - self.prefilled) * 1e3
        told: dict[str, object] = {
            "cache_n": self.cached_tokens,
            "prompt_n": computed,
            "prompt_ms": prompt_ms,
            "prompt_per_second": computed / prompt_ms * 1e3,
            "predicted_n": self.reply.tokens,
            "predicted_ms": predicted_ms,
            "predicted_per_second": (self.reply.tokens - 1) / predicted_ms * 1e3 if predicted_ms else None,
        }
        if self.decoding.drafted:
            told |= {"draft_n": self.decoding.drafted, "draft_n_accepted": self.decoding.accepted}
        return told

    @property
    def usage(self) -> dict[str, object]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.reply.tokens,
            "total_tokens": self.prompt_tokens + self.reply.tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }


class Server:
    """One request at a time, as `--max-concurrency 1`; others wait."""

    def __init__(self, options: argparse.Namespace, artifact: Artifact) -> None:
        self._options = options
        self._artifact = artifact
        self._instance = uuid.uuid4().hex
        self._log: TextIO | None = options.request_log_jsonl and options.request_log_jsonl.open("a", buffering=1)
        self._turn = asyncio.Lock()
        self._served = 0
        self._last_prompt = b""
        self._note("server_start", max_context=options.max_context, model=artifact.name)

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/health", self._health),
            web.get("/v1/models", self._models),
            web.post("/v1/chat/completions", self._chat),
            web.get("/sim/gpus", self._gpus),
        ]

    async def _health(self, _request: web.Request) -> web.Response:
        return json_reply({"status": "ok"})

    async def _models(self, _request: web.Request) -> web.Response:
        card = {"id": self._artifact.name, "object": "model", "max_model_len": self._options.max_context}
        return json_reply({"object": "list", "data": [card]})

    async def _gpus(self, _request: web.Request) -> web.Response:
        total = int(self._artifact.device_mib * MIB)
        free = int(self._artifact.slack_mib(self._options.max_context, self._options.spec) * MIB)
        return json_reply([self._device(index, total, free) for index in range(DEVICES)])

    def _device(self, index: int, total: int, free: int) -> dict[str, object]:
        return {
            "index": index,
            "uuid": f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, f'ninfer/{index}')}",
            "name": "Simulated 16 GB",
            "memory_total_bytes": total,
            "memory_free_bytes": free,
            "memory_used_bytes": total - free,
            "memory_reserved_bytes": 0,
            "utilization_gpu_percent": 100.0 if self._turn.locked() else 0.0,
        }

    async def _chat(self, request: web.Request) -> web.Response:
        try:
            body = json.loads(await request.read())
            prompt, budget = text_of(body), int(body.get("max_tokens") or 2048)
            answer = reply(self._artifact, body, budget)
        except (ValueError, KeyError, TypeError, AttributeError):
            return _error("the body is no chat request", "invalid_request_error")
        if body.get("stream"):
            return _error("streams are not simulated: send stream false", "unsupported")
        tokens = max(len(tokenize(prompt)), 1)
        if tokens + budget > self._options.max_context:
            return _error(f"{tokens} + {budget} tokens exceed the context", "context_length_exceeded")
        async with self._turn:
            self._served += 1
            served = await self._serve(self._served, prompt, tokens, answer)
            self._note_done(served, budget)
        return self._answer(served)

    async def _serve(self, request_id: int, prompt: str, tokens: int, answer: Reply) -> Served:
        options, artifact = self._options, self._artifact
        decoding = decode(artifact, options.spec, options.draft_tokens, answer.tokens, tokens, prompt)
        cached = 0 if options.no_prefix_reuse else self._known_tokens(prompt, tokens)
        begun = time.monotonic()
        await _until(begun + (tokens - cached) / artifact.prefill_tokens_per_s / options.speed)
        prefilled = time.monotonic()
        await _until(prefilled + decoding.ms / 1e3 / options.speed)
        return Served(request_id, tokens, cached, answer, decoding, begun, prefilled, time.monotonic())

    def _known_tokens(self, prompt: str, tokens: int) -> int:
        """Tokens of the last prompt's start that this one shares; the last token is always computed."""
        data, before = prompt.encode(), self._last_prompt
        pairs = enumerate(zip(data, before, strict=False))
        shared = next((at for at, (one, other) in pairs if one != other), min(len(data), len(before)))
        self._last_prompt = data
        return min(shared // TOKEN_BYTES, tokens - 1)

    def _answer(self, served: Served) -> web.Response:
        said = served.reply
        message: dict[str, object] = {"role": "assistant", "content": said.content}
        if said.reasoning:
            message["reasoning_content"] = said.reasoning
        if said.call is not None:
            message["tool_calls"] = [{"index": 0, "id": "call_0", "type": "function", "function": said.call}]
        return json_reply(
            {
                "id": f"chatcmpl-{served.request_id}",
                "object": "chat.completion",
                "created": int(time.time()),
                "model": self._artifact.name,
                "choices": [{"index": 0, "message": message, "finish_reason": said.finish}],
                "usage": served.usage,
                "timings": served.timings,
            }
        )

    def _note_done(self, served: Served, budget: int) -> None:
        reasons = {"length": "output_limit", "stop": "stop_token", "tool_calls": "stop_token"}
        prefill_s, decode_s = served.prefilled - served.begun, served.ended - served.prefilled
        self._note(
            "request_done",
            request={
                "request_id": served.request_id,
                "protocol": "openai_chat",
                "stream": False,
                "requested_output_tokens": budget,
            },
            result={
                "finish_reason": reasons[served.reply.finish],
                "prompt_tokens": served.prompt_tokens,
                "completion_tokens": served.reply.tokens,
                "prefix_cache_hit_tokens": served.cached_tokens,
                "tool_call_count": int(served.reply.call is not None),
            },
            timings_seconds={
                "prepare": 0.0,
                "vision": 0.0,
                "prefill": prefill_s,
                "decode": decode_s,
                "ttft": prefill_s,
                "total": prefill_s + decode_s,
            },
            speculative={
                "backend": self._options.spec,
                "draft_window": self._options.draft_tokens,
                "rounds": served.decoding.rounds,
                "drafted_tokens": served.decoding.drafted,
                "accepted_tokens": served.decoding.accepted,
            },
        )

    def _note(self, event: str, **fields: object) -> None:
        if self._log is None:
            return
        head = {"artifact_type": "ninfer_serve_request_log", "schema_version": 21, "event": event}
        stamps = {"timestamp_unix_ms": time.time_ns() // 1_000_000, "server_instance_id": self._instance}
        self._log.write(json.dumps({**head, **stamps, **fields}, ensure_ascii=False) + "\n")


async def _until(moment: float) -> None:
    while (left := moment - time.monotonic()) > 0:
        await asyncio.sleep(left)


def _error(message: str, code: str) -> web.Response:
    return json_reply({"error": {"message": message, "type": "invalid_request_error", "code": code}}, 400)


def reserve(artifact: Artifact, max_context: int, backend: Backend) -> bool:
    """Print what the context takes; False when it does not fit."""
    slack_mib = artifact.slack_mib(max_context, backend)
    print(f"engine: max_context {max_context}, kv reservation planned", flush=True)
    if slack_mib < 0:
        print(f"error: context reservation failed: short of {-slack_mib:.1f} MiB per device", flush=True)
        return False
    print(f"engine: reservation done, planned slack {slack_mib:.1f} MiB per device", flush=True)
    return True


@asynccontextmanager
async def serving(options: argparse.Namespace, artifact: Artifact) -> AsyncIterator[str]:
    """The server on the running event loop while the block lasts; gives its URL."""
    app = web.Application(client_max_size=BODY_BYTES_MAX)
    app.add_routes(Server(options, artifact).routes())
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    try:
        await web.TCPSite(runner, options.host, options.port).start()
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


def main(arguments: list[str] | None = None) -> int:
    """The exit code."""
    options = _parser().parse_args(arguments)
    try:
        artifact = Artifact.read(options.model)
        if options.spec not in artifact.drafting:
            raise ConfigError("--spec", f"{artifact.name} has no {options.spec}: {', '.join(artifact.drafting)}")
        print(f"loading {artifact.name} ({secrets.token_hex(4)})", flush=True)
        time.sleep(artifact.load_s / options.speed)
        if not reserve(artifact, options.max_context, options.spec):
            return EXIT_NO_MEMORY
        run(serving(options, artifact), ready=lambda url: print(f"listening on {url}", flush=True))
    except (ConfigError, OSError) as error:
        print(f"ninfer sim: {error}", file=sys.stderr)
        return EXIT_USAGE
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="raybench.sim.ninfer", description="A simulated ninfer-like server.")
    parser.add_argument("model", type=Path, help="a .sim-artifact.json")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--max-context", type=int, default=196608)
    parser.add_argument("--spec", choices=get_args(Backend), default="mtp")
    parser.add_argument("--draft-tokens", type=int, default=3)
    parser.add_argument("--no-prefix-reuse", action="store_true")
    parser.add_argument("--request-log-jsonl", type=Path)
    parser.add_argument("--speed", type=float, default=1.0, help="everything so many times as fast")
    return parser


if __name__ == "__main__":
    sys.exit(main())
