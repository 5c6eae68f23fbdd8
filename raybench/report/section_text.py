"""The words of sections that have many of their own, in English and in Chinese: searches, the engine's books,
artifacts. Read with `text.py`.
"""

from __future__ import annotations

from collections.abc import Mapping


class SearchText:
    """The words of searches. Answers are by status, sides by whether a probe passes (None: it says nothing)."""

    heading = "Searches"
    note = (
        "Each level that a search came to is a point of its own, with its own verdict. A level without a valid"
        " number counts neither as passing nor as failing."
    )
    title = "{workload} on {arm}: {question}"
    slo = "the highest level with {limits}"
    knee = "the lowest level whose output throughput the highest exceeds by at most {gain}"
    slo_answers: Mapping[str, str] = {
        "found": "{passes}; {fails} fails.",
        "below_minimum": "None: the minimum, {fails}, fails.",
        "above_maximum": "{passes}, the maximum: not bounded by the search.",
        "probes_used_up": "Highest that passes {passes}, lowest that fails {fails}: all probes are used.",
        "void_probes": "Highest that passes {passes}, lowest that fails {fails}: no other level gave a valid"
        " number.",
        "skipped": "Not searched: the target cannot hold the minimum.",
        "unfinished": "Not finished. Highest that passes {passes}, lowest that fails {fails}.",
    }
    knee_answers: Mapping[str, str] = {
        "found": "{fails}; up to {passes} throughput still grows.",
        "below_minimum": "{fails}, the minimum, is saturated already.",
        "above_maximum": "None: throughput still grows at {passes}, the maximum.",
        "probes_used_up": "Saturated at {fails}, not yet at {passes}: all probes are used.",
        "void_probes": "Saturated at {fails}, not yet at {passes}: no other level gave a valid number.",
        "skipped": "Not searched: the target cannot hold the minimum.",
        "unfinished": "Not finished. Saturated at {fails}, not yet at {passes}.",
    }
    goodput = (
        "Goodput there: {good} of {n} requests met the limits each by itself, {rate} requests/s ({interval}),"
        " {tokens} output tok/s."
    )
    interval = "95 % interval {low} to {high}"
    no_interval = "too few for an interval"
    bounded = "Searched up to {level} only: {reason}."
    columns = ("Level", "Verdict", "Result", "Why")
    goodput_column = "Goodput (req/s)"
    slo_sides: Mapping[bool | None, str] = {True: "passes", False: "fails", None: "—"}
    knee_sides: Mapping[bool | None, str] = {True: "grows", False: "saturated", None: "—"}
    not_known = "{metric} is not known"


class AgreementText:
    """The words of the engine's books beside the records; `names` are those of `analysis.agreement`."""

    heading = "The engine's own books"
    note = (
        "Counters and histograms of the engine over the load beside the records, latencies in ms. By request:"
        " client minus what the engine told with the same answer, P50 / P99. Between the two clocks lie the"
        " engine's HTTP server (it starts its clock once it has read the request), the network, and the client's"
        " reading. What one side alone sees stands at the end: from the sending to the head of the answer, with"
        " which SGLang's clock begins, and the engine's own queue."
    )
    verdict = "{total} comparisons: {equal} equal, {agrees} agree, {explained} explained, {flagged} flagged."
    nothing = "The engine says nothing of itself that could be compared with the records."
    columns = ("Point", "What", "Engine", "Records", "Difference", "Judged")
    names: Mapping[str, str] = {
        "requests": "requests",
        "input_tokens": "input tokens",
        "output_tokens": "output tokens",
        "cached_tokens": "cached tokens",
        "ttft": "TTFT",
        "e2e": "E2E",
        "tpot": "TPOT",
        "itl": "gap between tokens",
        "head": "head of the answer",
        "queue": "engine's queue",
    }
    mean = "{name} mean"
    paired = "{name} by request"
    judgements: Mapping[str, str] = {
        "equal": "equal",
        "agrees": "agrees",
        "explained": "explained",
        "flagged": "FLAGGED",
    }


class ArtifactText:
    """The words of artifact comparisons, quality gates and probes of launch parameters."""

    gate = "Quality gate"
    gate_columns = ("Arm", "Result", "Needed", "Not passed")
    gate_failed = "{summary}: below what was asked, the numbers are marked"
    heading = "Comparison of artifacts"
    note = (
        "Arms that were sent the same prompts. Rates are the engines' own: decode tok/s = (completion - 1) /"
        " decode seconds, end-to-end tok/s = completion / request seconds, each summed before it is divided."
        " Process seconds run from the start of the server to its end."
    )
    overview = "Overview"
    overview_columns = (
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
    )
    total = "total"
    by_prompt = "Decode tok/s by prompt"
    by_prompt_note = (
        "‡ the rate comes from an answer that was cut off by its budget. Last column: the fastest arm and its"
        " lead over the second; below {percent:g} % single sendings show no clear difference."
    )
    prompt = "Prompt"
    fastest = "Fastest"
    no_clear_difference = "no clear difference ({arm} {lead})"
    prefill = "Long-context prefill: {prompt}"
    prefill_note = "The longest prompt of the set; rates of short ones are mostly the fixed cost of a request."
    prefill_rows = ("prompt tokens", "prefill s", "prefill tok/s", "TTFT s (engine)")
    metric = "Metric"
    memory = "Memory and truncation"
    memory_columns = (
        "Arm",
        "Context",
        "Free after start",
        "Planned slack",
        "Truncated",
        "Empty answers",
        "Highest use of the context",
    )
    same_context = "Same context ({context} tokens)"
    same_context_note = "Against {base}. Equal numbers of generated tokens show that two arms answered alike."
    relative = "{arm} relative"
    same_context_rows = (
        "completion tokens",
        "total tokens",
        "decode s",
        "decode tok/s",
        "request s",
        "acceptance",
        "slack after start (MiB)",
    )
    probes = "What starts: {arm}, {parameter}"
    probes_note = "Launched with one value after another before this run ({folder})."
    sides = "Client and engine side by side"
    sides_note = (
        "Means a request. Over = client - engine: the network, both HTTP ends, and waits that the engine leaves"
        " out. ≠ marks more than {share:.0%} of the client's E2E and more than {ms:g} ms, and a client that was"
        " faster than the engine by more than {early_ms:g} ms."
    )
    side_columns = (
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
    )


class ChineseSearches(SearchText):
    heading = "搜索"
    note = "搜索到过的每一档都是一个测量点，有自己的结论。没有有效数值的一档既不算通过也不算不通过。"
    title = "{workload}，{arm}：{question}"
    slo = "满足 {limits} 的最高一档"
    knee = "最高输出吞吐超出不到 {gain} 的最低一档"
    slo_answers: Mapping[str, str] = {
        "found": "{passes}；{fails} 不满足。",
        "below_minimum": "无：最低档 {fails} 即不满足。",
        "above_maximum": "{passes}，即最高档：搜索范围未触顶。",
        "probes_used_up": "最高满足 {passes}，最低不满足 {fails}：探测次数已用完。",
        "void_probes": "最高满足 {passes}，最低不满足 {fails}：其余各档没有有效数值。",
        "skipped": "未搜索：目标容不下最低档。",
        "unfinished": "未完成。最高满足 {passes}，最低不满足 {fails}。",
    }
    knee_answers: Mapping[str, str] = {
        "found": "{fails}；到 {passes} 吞吐仍在增长。",
        "below_minimum": "最低档 {fails} 已饱和。",
        "above_maximum": "无：最高档 {passes} 吞吐仍在增长。",
        "probes_used_up": "{fails} 已饱和，{passes} 尚未：探测次数已用完。",
        "void_probes": "{fails} 已饱和，{passes} 尚未：其余各档没有有效数值。",
        "skipped": "未搜索：目标容不下最低档。",
        "unfinished": "未完成。{fails} 已饱和，{passes} 尚未。",
    }
    goodput = (
        "该档 goodput：{n} 个请求中 {good} 个各自满足限值，{rate} 请求/s（{interval}），输出 {tokens} tok/s。"
    )
    interval = "95 % 区间 {low} 至 {high}"
    no_interval = "样本太少，不给区间"
    bounded = "只搜索到 {level}：{reason}。"
    columns = ("档位", "结论", "结果", "原因")
    goodput_column = "Goodput（请求/s）"
    slo_sides: Mapping[bool | None, str] = {True: "满足", False: "不满足", None: "—"}
    knee_sides: Mapping[bool | None, str] = {True: "仍在增长", False: "已饱和", None: "—"}
    not_known = "{metric} 未知"


class ChineseAgreement(AgreementText):
    heading = "与引擎自身统计对账"
    note = (
        "加压期间引擎自身的计数器与直方图，与逐请求记录并列；延迟单位为 ms。"
        "逐请求：客户端减去引擎随同一回答给出的值，P50 / P99。"
        "两个时钟之间隔着引擎的 HTTP 服务（读完请求后才开始计时）、网络与客户端的读取。"
        "末尾是只有一方能看到的时间：从发出请求到收到响应头（SGLang 此时才开始计时），以及引擎自身的排队。"
    )
    verdict = "共 {total} 项比对：{equal} 项相等，{agrees} 项相符，{explained} 项可解释，{flagged} 项不符。"
    nothing = "引擎没有给出可与记录比对的自身统计。"
    columns = ("测量点", "项目", "引擎", "记录", "差值", "判定")
    names: Mapping[str, str] = {
        "requests": "请求数",
        "input_tokens": "输入 token 数",
        "output_tokens": "输出 token 数",
        "cached_tokens": "命中 token 数",
        "ttft": "TTFT",
        "e2e": "E2E",
        "tpot": "TPOT",
        "itl": "token 间隔",
        "head": "响应头",
        "queue": "引擎排队",
    }
    mean = "{name} 均值"
    paired = "{name}（逐请求）"
    judgements: Mapping[str, str] = {"equal": "相等", "agrees": "相符", "explained": "可解释", "flagged": "不符"}


class ChineseArtifacts(ArtifactText):
    gate = "质量门"
    gate_columns = ("方案", "结果", "要求", "未通过")
    gate_failed = "{summary}：低于要求，各项数字均已标注"
    heading = "Artifact 对比"
    note = (
        "各方案发送相同的 prompt。速率取自引擎自身：decode tok/s = (completion - 1) / decode 秒，"
        "端到端 tok/s = completion / 请求秒，均先求和再相除；进程秒为服务进程从启动到退出的墙钟。"
    )
    overview = "总览"
    overview_columns = (
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
    )
    total = "合计"
    by_prompt = "逐场景 decode (tok/s)"
    by_prompt_note = (
        "‡ 该速率来自被预算截断的回答。末列为最快方案及其对第二名的领先；"
        "低于 {percent:g} % 时，单次发送不足以视为差异。"
    )
    prompt = "场景"
    fastest = "最快"
    no_clear_difference = "无明显差异（{arm} {lead}）"
    prefill = "长上下文 prefill：{prompt}"
    prefill_note = "取该组中最长的 prompt；短 prompt 的速率主要受固定请求开销影响。"
    prefill_rows = ("prompt tokens", "prefill 秒", "prefill tok/s", "TTFT 秒（引擎）")
    metric = "指标"
    memory = "显存与截断"
    memory_columns = ("方案", "上下文", "启动后 free", "planned slack", "截断请求", "正文为空", "上下文最大占用")
    same_context = "同 context（{context} tokens）对比"
    same_context_note = "以 {base} 为基准。生成 token 数完全相同说明两方案的回答一致。"
    relative = "{arm} 相对"
    same_context_rows = (
        "completion tokens",
        "total tokens",
        "decode 秒",
        "decode tok/s",
        "请求秒",
        "接受率",
        "启动后 slack (MiB)",
    )
    probes = "启动探测：{arm}，{parameter}"
    probes_note = "本次运行之前逐档启动（{folder}）。"
    sides = "客户端与引擎并列"
    sides_note = (
        "每请求均值。差 = 客户端 - 引擎：网络、两端 HTTP，以及引擎未计入的等待。≠ 表示差超过客户端 E2E 的"
        " {share:.0%} 且超过 {ms:g} ms，或客户端比引擎快 {early_ms:g} ms 以上。"
    )
    side_columns = (
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
    )
