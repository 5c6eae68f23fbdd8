"""The words of artifact comparisons and of quality gates, by language."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ArtifactText:
    """Placeholders in braces are filled by `str.format`."""

    gate: str
    gate_columns: tuple[str, ...]
    gate_failed: str
    heading: str
    note: str
    overview: str
    overview_columns: tuple[str, ...]
    total: str
    by_prompt: str
    by_prompt_note: str
    prompt: str
    fastest: str
    no_clear_difference: str
    prefill: str
    prefill_note: str
    prefill_rows: tuple[str, str, str, str]
    metric: str
    memory: str
    memory_columns: tuple[str, ...]
    same_context: str
    same_context_note: str
    relative: str
    same_context_rows: tuple[str, ...]
    probes: str
    probes_note: str
    sides: str
    sides_note: str
    side_columns: tuple[str, ...]


ENGLISH_ARTIFACTS = ArtifactText(
    gate="Quality gate",
    gate_columns=("Arm", "Result", "Needed", "Not passed"),
    gate_failed="{summary}: below what was asked, the numbers are marked",
    heading="Comparison of artifacts",
    note="Arms that were sent the same prompts. Rates are the engines' own: decode tok/s = (completion - 1) /"
    " decode seconds, end-to-end tok/s = completion / request seconds, each summed before it is divided. Process"
    " seconds run from the start of the server to its end.",
    overview="Overview",
    overview_columns=(
        "Arm",
        "Prompt tok",
        "Generated tok",
        "Total tok",
        "Load s",
        "Request s",
        "Process s",
        "Decode tok/s",
        "End-to-end tok/s",
        "Acceptance",
        "Tok/round",
        "Truncated/empty",
        "Gate",
    ),
    total="total",
    by_prompt="Decode tok/s by prompt",
    by_prompt_note="‡ the rate comes from an answer that was cut off by its budget. Last column: the fastest arm"
    " and its lead over the second; below {percent:g} % single sendings show no clear difference.",
    prompt="Prompt",
    fastest="Fastest",
    no_clear_difference="no clear difference ({arm} {lead})",
    prefill="Long-context prefill: {prompt}",
    prefill_note="The longest prompt of the set; rates of short ones are mostly the fixed cost of a request.",
    prefill_rows=("prompt tokens", "prefill s", "prefill tok/s", "TTFT s (engine)"),
    metric="Metric",
    memory="Memory and truncation",
    memory_columns=(
        "Arm",
        "Context",
        "Free after start",
        "Planned slack",
        "Truncated",
        "Empty answers",
        "Highest use of the context",
    ),
    same_context="Same context ({context} tokens)",
    same_context_note="Against {base}. Equal numbers of generated tokens show that two arms answered alike.",
    relative="{arm} relative",
    same_context_rows=(
        "completion tokens",
        "total tokens",
        "decode s",
        "decode tok/s",
        "request s",
        "acceptance",
        "slack after start (MiB)",
    ),
    probes="What starts: {arm}, {parameter}",
    probes_note="Launched with one value after another before this run ({folder}).",
    sides="Client and engine side by side",
    sides_note="Means a request. Over = client - engine: the network, both HTTP ends, and waits that the engine"
    " leaves out. ≠ marks more than {share:.0%} of the client's E2E and more than {ms:g} ms, and a client that was"
    " faster than the engine by more than {early_ms:g} ms.",
    side_columns=(
        "Arm",
        "Prompt",
        "E2E client s",
        "E2E engine s",
        "E2E over ms",
        "TTFT client s",
        "TTFT engine s",
        "TTFT over ms",
        "Decode client tok/s",
        "Decode engine tok/s",
    ),
)

CHINESE_ARTIFACTS = ArtifactText(
    gate="质量门",
    gate_columns=("方案", "结果", "要求", "未通过"),
    gate_failed="{summary}：低于要求，各项数字均已标注",
    heading="Artifact 对比",
    note="各方案发送相同的 prompt。速率取自引擎自身：decode tok/s = (completion - 1) / decode 秒，"
    "端到端 tok/s = completion / 请求秒，均先求和再相除；进程秒为服务进程从启动到退出的墙钟。",
    overview="总览",
    overview_columns=(
        "方案",
        "Prompt tok",
        "生成 tok",
        "总 tok",
        "加载 s",
        "请求 s",
        "进程 s",
        "decode tok/s",
        "端到端 tok/s",
        "接受率",
        "tok/轮",
        "截断/空回答",
        "质量门",
    ),
    total="合计",
    by_prompt="逐场景 decode (tok/s)",
    by_prompt_note="‡ 该速率来自被预算截断的回答。末列为最快方案及其对第二名的领先；"
    "低于 {percent:g} % 时，单次发送不足以视为差异。",
    prompt="场景",
    fastest="最快",
    no_clear_difference="无明显差异（{arm} {lead}）",
    prefill="长上下文 prefill：{prompt}",
    prefill_note="取该组中最长的 prompt；短 prompt 的速率主要受固定请求开销影响。",
    prefill_rows=("prompt tokens", "prefill 秒", "prefill tok/s", "TTFT 秒（引擎）"),
    metric="指标",
    memory="显存与截断",
    memory_columns=("方案", "上下文", "启动后 free", "planned slack", "截断请求", "正文为空", "上下文最大占用"),
    same_context="同 context（{context} tokens）对比",
    same_context_note="以 {base} 为基准。生成 token 数完全相同说明两方案的回答一致。",
    relative="{arm} 相对",
    same_context_rows=(
        "completion tokens",
        "total tokens",
        "decode 秒",
        "decode tok/s",
        "请求秒",
        "接受率",
        "启动后 slack (MiB)",
    ),
    probes="启动探测：{arm}，{parameter}",
    probes_note="本次运行之前逐档启动（{folder}）。",
    sides="客户端与引擎并列",
    sides_note="每请求均值。差 = 客户端 - 引擎：网络、两端 HTTP，以及引擎未计入的等待。≠ 表示差超过客户端 E2E 的"
    " {share:.0%} 且超过 {ms:g} ms，或客户端比引擎快 {early_ms:g} ms 以上。",
    side_columns=(
        "方案",
        "场景",
        "E2E 客户端 s",
        "E2E 引擎 s",
        "E2E 差 ms",
        "TTFT 客户端 s",
        "TTFT 引擎 s",
        "TTFT 差 ms",
        "decode 客户端 tok/s",
        "decode 引擎 tok/s",
    ),
)
