"""The words of the comparison between the engine's books and the records, by language."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class AgreementText:
    """Names are those of the lines of `analysis.agreement`. Placeholders in braces are filled by `str.format`."""

    heading: str
    note: str
    verdict: str
    nothing: str
    columns: tuple[str, ...]
    names: dict[str, str]
    mean: str
    paired: str
    judgements: dict[str, str]


ENGLISH_AGREEMENT = AgreementText(
    heading="The engine's own books",
    note="Counters and histograms of the engine over the load beside the records, latencies in ms. By request:"
    " client minus what the engine told with the same answer, P50 / P99. Between the two clocks lie the engine's"
    " HTTP server (it starts its clock once it has read the request), the network, and the client's reading.",
    verdict="{total} comparisons: {equal} equal, {agrees} agree, {explained} explained, {flagged} flagged.",
    nothing="The engine says nothing of itself that could be compared with the records.",
    columns=("Point", "What", "Engine", "Records", "Difference", ""),
    names={
        "requests": "requests",
        "input_tokens": "input tokens",
        "output_tokens": "output tokens",
        "cached_tokens": "cached tokens",
        "ttft": "TTFT",
        "e2e": "E2E",
        "tpot": "TPOT",
        "itl": "gap between tokens",
    },
    mean="{name} mean",
    paired="{name} by request",
    judgements={"equal": "equal", "agrees": "agrees", "explained": "explained", "flagged": "FLAGGED"},
)
