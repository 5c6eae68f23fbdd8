"""Serving engines: one class a dialect, by the name that a scenario writes in `engine`."""

from __future__ import annotations

from raybench.engines.contract import Engine
from raybench.engines.llamacpp import LlamaCpp
from raybench.engines.openai import OpenAI
from raybench.engines.sglang import SGLang
from raybench.engines.vllm import VLLM

ENGINES: dict[str, Engine] = {
    "sglang": SGLang(),
    "vllm": VLLM(),
    "openai": OpenAI(),
    "llamacpp": LlamaCpp(),
}
