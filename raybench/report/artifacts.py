"""Artifact comparisons, quality gates and probes of launch parameters as tables with headings.

Pure: JSON of a run in, blocks out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from raybench.analysis.artifacts import together
from raybench.analysis.difference import NOISE_FLOOR_PERCENT, is_clear
from raybench.analysis.engine_timings import AGREE_MS, AGREE_SHARE, EARLY_MS, client_agrees
from raybench.analysis.points import has_numbers
from raybench.report import numbers
from raybench.report.document import Block, Heading, Paragraph, Row, Table, noted
from raybench.report.section_text import ArtifactText

Entry = Mapping[str, Any]
#: The fields of a `deploy.probe.Trial`.
Trial = Mapping[str, Any]


def gate_table(gates: Mapping[str, Entry], text: ArtifactText) -> Table:
    """One row an arm: `7/7`, or `6/7: tool-call failed` and why."""
    rows = []
    for arm, gate in gates.items():
        result = gate["summary"] if gate["ok"] else text.gate_failed.format(summary=gate["summary"])
        why = [f"{check['name']}: {check['detail']}" for check in gate["checks"] if not check["passed"]]
        cells = (arm, result, str(gate["needed"]), "; ".join(why) or numbers.UNKNOWN)
        rows.append(Row(cells) if gate["ok"] else Row(cells, tone="bad", strong=frozenset({1})))
    return Table(text.gate_columns, rows)


def comparisons(
    entries: Sequence[Entry], free_bytes: Mapping[str, int | None], text: ArtifactText
) -> Iterator[Block]:
    """The second seed's tables, by prompt set and concurrency. free_bytes: by name of the point."""
    groups: dict[tuple[str, int], list[Entry]] = {}
    for entry in entries:
        if has_numbers(entry):
            groups.setdefault((entry["workload"], entry["concurrency"]), []).append(entry)
    if groups:
        yield Paragraph(text.note)
    for (workload, concurrency), group in groups.items():
        where = f"{workload}, C={concurrency}"
        yield from _titled(f"{text.overview}: {where}", "", _overview(group, text))
        yield from _titled(
            f"{text.by_prompt}: {where}",
            text.by_prompt_note.format(percent=NOISE_FLOOR_PERCENT),
            _by_prompt(group, text),
        )
        longest = _longest_prompt(group)
        if longest is not None:
            title = text.prefill.format(prompt=longest)
            yield from _titled(f"{title}: {where}", text.prefill_note, _prefill(group, longest, text))
        yield from _titled(f"{text.memory}: {where}", "", _memory(group, free_bytes, text))
        yield from _same_context(group, where, text)
        agreement = text.sides_note.format(share=AGREE_SHARE, ms=AGREE_MS, early_ms=EARLY_MS)
        yield from _titled(f"{text.sides}: {where}", agreement, _sides(group, text))


def _titled(title: str, note: str, table: Table) -> tuple[Block, ...]:
    return (Heading(title), *noted(note, table))


def _overview(group: Sequence[Entry], text: ArtifactText) -> Table:
    rows = [Row((entry["arm"], *_overview_cells(entry, _of_gate(entry)))) for entry in group]
    if len(group) > 1:
        rows.append(Row((text.total, *_overview_cells(together(group), numbers.UNKNOWN))))
    return Table(text.overview_columns, rows, right=frozenset(range(1, 12)))


def _overview_cells(entry: Entry, gate: str) -> tuple[str, ...]:
    return (
        numbers.count(entry["input_tokens"]),
        numbers.count(entry["output_tokens"]),
        numbers.count(_add(entry["input_tokens"], entry["output_tokens"])),
        numbers.fixed(entry["load_s"], 1),
        numbers.fixed(entry["request_s"], 1),
        numbers.fixed(entry["process_s"], 1),
        _marked(entry["decode_tokens_per_s"], entry),
        _marked(entry["request_tokens_per_s"], entry),
        numbers.percent(entry["acceptance_rate"], decimals=1),
        numbers.fixed(entry["tokens_per_round"], 2),
        f"{entry['truncated']}/{entry['empty']}",
        gate,
    )


def _of_gate(entry: Entry) -> str:
    return numbers.UNKNOWN if entry["gate"] is None else str(entry["gate"])


def _by_prompt(group: Sequence[Entry], text: ArtifactText) -> Table:
    arms = [entry["arm"] for entry in group]
    rows = []
    for name in _prompt_names(group):
        told = [_prompt(entry, name) for entry in group]
        rates = {arm: one["decode_tokens_per_s"] for arm, one in zip(arms, told, strict=True) if one is not None}
        cells = [numbers.UNKNOWN if one is None else _marked(one["decode_tokens_per_s"], one) for one in told]
        rows.append(Row((name, *cells, _fastest(rates, text))))
    return Table((text.prompt, *arms, text.fastest), rows, right=frozenset(range(1, len(arms) + 1)))


def _fastest(rates: Mapping[str, float | None], text: ArtifactText) -> str:
    known = sorted(((rate, arm) for arm, rate in rates.items() if rate is not None), reverse=True)
    if len(known) < 2 or not known[1][0]:
        return numbers.UNKNOWN
    (most, arm), (second, _), *_ = known
    lead = numbers.change(100 * (most / second - 1), decimals=1)
    if not is_clear(most, second, NOISE_FLOOR_PERCENT):
        return text.no_clear_difference.format(arm=arm, lead=lead)
    return f"{arm} ({lead})"


def _prefill(group: Sequence[Entry], name: str, text: ArtifactText) -> Table:
    prompts = [_prompt(entry, name) or {} for entry in group]
    told = [(prompt, prompt.get("requests_ok") or 1) for prompt in prompts]
    cells = (
        [numbers.count(_each(prompt.get("input_tokens"), n)) for prompt, n in told],
        [numbers.fixed(_over(prompt.get("prefill_s"), n), 2) for prompt, n in told],
        [numbers.fixed(prompt.get("prefill_tokens_per_s"), 1) for prompt, _ in told],
        [numbers.fixed(_over(prompt.get("first_token_s"), n), 2) for prompt, n in told],
    )
    rows = [Row((label, *own)) for label, own in zip(text.prefill_rows, cells, strict=True)]
    arms = [entry["arm"] for entry in group]
    return Table((text.metric, *arms), rows, right=frozenset(range(1, len(arms) + 1)))


def _memory(group: Sequence[Entry], free_bytes: Mapping[str, int | None], text: ArtifactText) -> Table:
    rows = []
    for entry in group:
        empty = [prompt["prompt"] for prompt in entry["prompts"] if prompt["empty"]]
        free = free_bytes.get(entry["name"])
        cells = (
            entry["arm"],
            numbers.count(entry["context_tokens"]),
            numbers.UNKNOWN if free is None else f"{free / numbers.MIB:,.0f} MiB",
            numbers.mib(entry["slack_mib"]),
            f"{entry['truncated']}/{entry['requests_ok']}",
            f"{entry['empty']} ({', '.join(empty)})" if empty else str(entry["empty"]),
            _used(entry),
        )
        rows.append(Row(cells))
    return Table(text.memory_columns, rows, right=frozenset({1, 2, 3, 4}))


def _used(entry: Entry) -> str:
    """The longest request of any prompt, and its share of the context."""
    sizes = [
        _each(_add(prompt["input_tokens"], prompt["output_tokens"]), prompt["requests_ok"])
        for prompt in entry["prompts"]
    ]
    known = [size for size in sizes if size is not None]
    if not known:
        return numbers.UNKNOWN
    share = _over(max(known), entry["context_tokens"])
    return f"{max(known):,}" + ("" if share is None else f" ({numbers.percent(share, decimals=1)})")


def _same_context(group: Sequence[Entry], where: str, text: ArtifactText) -> Iterator[Block]:
    """Arms whose context is the same: prompt by prompt and as a whole against the first of them."""
    contexts: dict[int, list[Entry]] = {}
    for entry in group:
        if entry["context_tokens"] is not None:
            contexts.setdefault(entry["context_tokens"], []).append(entry)
    for context, same in contexts.items():
        if len(same) < 2:
            continue
        title = f"{text.same_context.format(context=f'{context:,}')}: {where}"
        yield from _titled(title, text.same_context_note.format(base=same[0]["arm"]), _against_first(same, text))


def _against_first(same: Sequence[Entry], text: ArtifactText) -> Table:
    base, *others = same
    columns = [text.metric, base["arm"]]
    for other in others:
        columns += [other["arm"], text.relative.format(arm=other["arm"])]
    rows = []
    for name in _prompt_names(same):
        own = [(_prompt(entry, name) or {}).get("decode_tokens_per_s") for entry in same]
        rows.append(Row((name, *_relative_cells(own, 2))))
    fields = (
        ("output_tokens", 0),
        ("total", 0),
        ("decode_s", 1),
        ("decode_tokens_per_s", 2),
        ("request_s", 1),
        ("acceptance_rate", 3),
        ("slack_mib", 1),
    )
    for (name, decimals), label in zip(fields, text.same_context_rows, strict=True):
        values = [
            _add(entry["input_tokens"], entry["output_tokens"]) if name == "total" else entry[name]
            for entry in same
        ]
        rows.append(Row((label, *_relative_cells(values, decimals))))
    return Table(tuple(columns), rows, right=frozenset(range(1, len(columns))))


def _relative_cells(values: Sequence[float | None], decimals: int) -> Iterator[str]:
    base = values[0]
    yield numbers.fixed(base, decimals)
    for value in values[1:]:
        yield numbers.fixed(value, decimals)
        yield (
            numbers.UNKNOWN if value is None or not base else numbers.change(100 * (value / base - 1), decimals=1)
        )


def _sides(group: Sequence[Entry], text: ArtifactText) -> Table:
    rows = []
    for entry in group:
        for prompt in entry["prompts"]:
            n = prompt["requests_ok"]
            cells = (
                entry["arm"],
                prompt["prompt"],
                numbers.fixed(_over(prompt["client_e2e_s"], n), 3),
                numbers.fixed(_over(prompt["request_s"], n), 3),
                _over_engine(prompt),
                numbers.fixed(_over(prompt["client_first_token_s"], n), 3),
                numbers.fixed(_over(prompt["first_token_s"], n), 3),
                numbers.fixed(prompt["ttft_over_engine_ms"], 1),
                numbers.fixed(prompt["client_decode_tokens_per_s"], 2),
                _marked(prompt["decode_tokens_per_s"], prompt),
            )
            rows.append(Row(cells))
    return Table(text.side_columns, rows, right=frozenset(range(2, 10)))


def _over_engine(told: Entry) -> str:
    """Client E2E - engine, marked where that is more than a client and its network explain."""
    over_ms = told["e2e_over_engine_ms"]
    if over_ms is None:
        return numbers.UNKNOWN
    e2e_s = _over(told["client_e2e_s"], told["requests_ok"]) or 0.0
    return numbers.fixed(over_ms, 1) + ("" if client_agrees(over_ms, e2e_s * 1000) else " ≠")


def _prompt_names(group: Sequence[Entry]) -> list[str]:
    return list(dict.fromkeys(prompt["prompt"] for entry in group for prompt in entry["prompts"]))


def _prompt(entry: Entry, name: str) -> Entry | None:
    return next((prompt for prompt in entry["prompts"] if prompt["prompt"] == name), None)


def _longest_prompt(group: Sequence[Entry]) -> str | None:
    known = [
        (_each(prompt["input_tokens"], prompt["requests_ok"]) or 0, prompt["prompt"])
        for entry in group
        for prompt in entry["prompts"]
    ]
    return max(known)[1] if known else None


def _marked(rate: float | None, told: Entry) -> str:
    """A rate, marked where it comes from answers that were cut off."""
    text = numbers.fixed(rate, 2)
    return f"{text} ‡" if rate is not None and told["truncated"] else text


def _add(first: int | None, second: int | None) -> int | None:
    return None if first is None or second is None else first + second


def _over(amount: float | None, divisor: float | None) -> float | None:
    return None if amount is None or not divisor else amount / divisor


def _each(amount: int | None, count: int) -> int | None:
    return None if amount is None or not count else round(amount / count)


# -- probes of launch parameters -------------------------------------------------------------------


def probe_table(probe: Mapping[str, Any]) -> Table:
    """As in the field reports: each value, and what was short or spare."""
    rows = [Row((numbers.count(trial["value"]), trial_result(trial))) for trial in probe["trials"]]
    return Table((probe["parameter"], probe["arm"]), rows, right=frozenset({0}))


def trial_table(parameter: str, trials: Sequence[Trial]) -> Table:
    """In the order of the trials, with how long each took to start and what it left free."""
    rows = [
        Row(
            (
                numbers.count(trial["value"]),
                numbers.seconds(trial["load_s"]),
                numbers.mib(trial["free_mib"]),
                trial_result(trial),
            )
        )
        for trial in trials
    ]
    return Table((parameter, "Load", "GPU free", "Result"), rows, right=frozenset({0, 1, 2}))


def trial_result(trial: Trial) -> str:
    """`starts, slack 5.1 MiB` or `712.0 MiB short`."""
    if trial["started"]:
        return "starts" + (f", slack {numbers.mib(trial['slack_mib'])}" if trial["slack_mib"] is not None else "")
    if trial["shortfall_mib"] is not None:
        return f"{numbers.mib(trial['shortfall_mib'])} short"
    return str(trial["error"]).splitlines()[0]
