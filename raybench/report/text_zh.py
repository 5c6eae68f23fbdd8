"""The words of a Chinese report, with the terms of the field. Reasons stay as the run recorded them."""

from __future__ import annotations

from collections.abc import Mapping

from raybench.report.section_text import ChineseAgreement, ChineseArtifacts, ChineseSearches
from raybench.report.text import DeploymentText, Page, Plots, Text


class ChineseDeployments(DeploymentText):
    heading = "部署"
    process_columns = ("方案", "加载", "进程", "结束原因")
    reasons: Mapping[str, str] = {
        "stopped": "由 raybench 停止",
        "not_ready": "未在时限内就绪",
        "out_of_memory": "显存不足",
        "out_of_host_memory": "主机内存不足",
        "killed": "被其他进程终止",
        "failed": "异常退出",
        "ended": "自行退出",
    }
    ledger = "各方案的构成"
    ledger_columns = ("方案", "项目", "sha256 或版本")


class ChinesePlots(Plots):
    level = "并发"
    rate = "每秒请求数"
    trace_speed = "相对 trace 原速的倍数"
    output_throughput = "输出吞吐（tok/s）"
    pareto = "吞吐对延迟"
    pareto_x: Mapping[str, str] = {"e2e_ms_p95": "E2E 延迟 P95", "ttft_ms_p95": "TTFT P95"}
    pareto_front = "两项均未被超越"
    queueing = "排队观察点"
    hit_rates = "每次尝试的前缀命中率"
    hit_rate_x = "尝试（按报告顺序）"
    hit_limit = "上限 {limit:g}"
    not_told = "未报告"
    does_not_count = "不计入的尝试"
    waterfall = "{point} 的请求"
    thinned = "{shown} / {total} 个请求"
    phases: Mapping[str, str] = {
        "queue": "排队（引擎）",
        "prefill": "prefill",
        "first": "排队与 prefill",
        "decode": "decode",
        "failed": "失败",
    }
    seconds = "自首个发送起的秒数"
    in_flight = "在飞请求"
    in_flight_client = "在飞（客户端）"
    running = "运行中（引擎）"
    queued = "排队中（引擎）"
    gpu_memory = "显存在用"
    highest_gpu = "最高的卡"
    lowest_gpu = "最低的卡"
    chunk_gaps = "chunk 间隔分布"
    chunk_gap_x = "间隔（不是 TPOT：每个 chunk 平均含 {tokens} 个 token）"
    chunk_gap_y = "chunk 数"


class ChinesePage(Page):
    contents = "目录"
    points = "测量点详情"
    pick = "测量点"
    previous = "上一个测量点"
    next = "下一个测量点"
    requests_shown = "计入的尝试：显示 {total} 个请求中的 {shown} 个"
    request_columns = (
        "序号",
        "发送 (s)",
        "排队 (ms)",
        "TTFT (ms)",
        "TPOT (ms)",
        "E2E (ms)",
        "输入",
        "输出",
        "命中",
        "结果",
        "代表",
        "worker",
    )
    no_records = "该测量点没有逐请求记录。"
    ok = "成功 / 计划请求"
    hit_rates = "前缀命中率"
    attempts = "尝试次数"
    accept_length = "投机接受长度"
    headroom = "显存最低余量"
    query = "全部记录："
    file = "文件"
    sort = "按此列排序"


class ChineseText(Text):
    language = "zh"
    title = "压测报告：{run_id}"
    summary = "结论摘要"
    counts = "共 {total} 个测量点：有效 {accepted}，作废 {void}，结构性跳过 {skipped}，未测 {missing}。"
    counts_imported = "另有导入 {imported}。"
    imported = "运行 {run_id} 并非由 raybench 测得，raybench 不为其数值担保；导入自：{source}。"
    not_stated = "来源未说明：{names}。"
    nothing_valid = "没有有效的测量点，无可总结。"
    sequential = "全部测量点均为顺序执行：同一时刻只有一个请求（C=1）。"
    ended = "本次运行的结束状态：{status}。"
    simulated = "以下方案为模拟引擎，数值不代表任何硬件：{arms}。"
    separator = "；"
    ahead = "明显占优"
    throughput = "吞吐"
    peak = "最高 {metric} {value} tok/s（{point}）"
    place = "{name}，{level}"
    at = "在 C={levels} "
    lead_one = "{arm} {at}占优{by}"
    lead_many = "{arm} {at}占优，C={most_at} 差距最大{by}"
    lead_by = "，为 {advantage}（{ahead} 对 {behind}）"
    lead_by_next = "，为 {advantage}（{ahead} 对 {other} 的 {behind}）"
    tie = "{at}无明显差异（{within}）"
    tie_in_front = "{arms} {at}共同领先（{within}）"
    within_floor = "{floor:g} % 以内"
    within_spread = "在重复运行的极差以内，或置信区间重叠"
    crossover = "{to_arm} 在 C={above} 之后、最迟 C={at} 反超 {from_arm}"
    growth: Mapping[str, str] = {
        "climbing": "{arm} 仍在爬坡：C={before_at}→{last_at} {step}",
        "plateau": "{arm} 自 C={plateau_from} 起进入平台（{last} tok/s）",
        "falling": "{arm} 出现回落：C={last_at} 为 {last}，最高点 C={best_at} 为 {best}",
    }
    queueing_points = "排队观察点（TTFT 含引擎内排队）：{points}。"
    queueing_point = "{workload} {arm} C={concurrency}（{waiting} 条排队）"
    tightest = "{arm} 最紧张的卡：{host} {gpu}，余量最低 {headroom}（{point}）。"
    reach = "仅 {arm} 有有效数值，{others} 没有"
    steadiness = "计入 {requests} 个请求，失败 {failed}；回退（retraction / preemption）{preemptions}。"
    environment = "测试环境与配置"
    fact = "项目"
    client = "运行 {run_id}（{created}）：raybench {raybench}，Python {python}，Ray {ray}"
    client_host = "客户端主机 {host}：可用 CPU {cpus} 个（{cpu}），内存 {memory}，{system} {kernel}"
    engine_facts: Mapping[str, str] = {
        "engine": "引擎",
        "version": "版本",
        "model": "模型",
        "max_running_requests": "最大活跃请求（max running requests）",
        "kv_pool_tokens": "KV 池（tokens）",
        "context_tokens": "上下文上限（tokens）",
        "max_input_tokens": "输入上限（tokens）",
        "page_tokens": "页大小（tokens）",
        "dp_size": "数据并行",
        "prefix_cache": "前缀缓存",
        "host_cache": "宿主层缓存",
        "storage_cache": "存储层缓存",
        "incremental_stream": "增量流式输出",
    }
    simulated_fact = "模拟"
    simulated_value = "模拟配置 {profile}，时间压缩 {compression:g} 倍"
    engine_settings: Mapping[str, str] = {
        "tp_size": "张量并行（TP）",
        "pp_size": "流水并行（PP）",
        "tensor_parallel_size": "张量并行（TP）",
        "pipeline_parallel_size": "流水并行（PP）",
        "quantization": "量化",
        "dtype": "数据类型",
        "kv_cache_dtype": "KV dtype",
        "mem_fraction_static": "mem-fraction-static",
        "gpu_memory_utilization": "gpu-memory-utilization",
        "chunked_prefill_size": "Chunk Prefill（tokens）",
        "max_prefill_tokens": "单次 prefill 上限（tokens）",
        "schedule_policy": "调度策略",
        "attention_backend": "注意力后端",
        "speculative_algorithm": "投机解码",
        "speculative_num_steps": "投机步数",
        "speculative_eagle_topk": "投机 top-k",
        "speculative_num_draft_tokens": "草稿 token 数",
        "enable_hierarchical_cache": "分层缓存",
        "hicache_ratio": "分层缓存倍率",
        "hicache_write_policy": "分层缓存写策略",
        "disable_cuda_graph": "关闭 CUDA graph",
        "cuda_graph_max_bs_decode": "decode 图最大批",
    }
    settings_differ = "其他不同的启动参数（引擎自己的名称）："
    setting = "参数"
    launch = "启动命令（{arm}）："
    gpus = "GPU"
    gpu_unavailable = "不可用（{reason}）"
    protocol = "测量协议（实际执行）"
    protocol_attempts = "{points} 个测量点共 {attempts} 次尝试，其中 {rejected} 次不计入。"
    protocol_cold = "冷缓存：每个可用来源的命中率均须 ≤ {limit:g}；有效点中最高 {highest}。"
    protocol_prewarm = "预热：每次尝试前发送 {count} 个同形状、不同文本的请求。"
    protocol_flush = "每次加压前清空前缀缓存并核对返回；预热前后均等待引擎空闲。"
    protocol_no_flush = "未清空前缀缓存：冷缓存由全新文本与命中率核验保证。"
    protocol_load = "闭环：保持并发 C，直到没有未发送的请求；{streaming}；token 数以服务端为准。"
    protocol_open_loop = (
        "开环：请求按预先排定的时刻发送，不等待先前请求的结果；{streaming}；token 数以服务端为准。"
    )
    streamed = "流式"
    not_streamed = "非流式"
    partly_streamed = "流式（{workloads} 除外）"
    protocol_of = "运行 {run_id}"
    rejected = "不计入的尝试："
    interrupted = "在得出结论前中断"
    attempt_columns = ("测量点", "尝试", "结论", "命中率", "窗口", "原因")
    hit_sources: Mapping[str, str] = {"requests": "请求", "counters": "计数器", "log": "日志"}
    active_limits = "活跃上限"
    active_limits_note = (
        "同一形状可同时运行的请求数：min（最大活跃请求，KV 池 // （输入 + 输出））。更高的并发在引擎内排队。"
    )
    workload = "场景"
    limit_by_running = "MRR"
    limit_by_pool = "KV 池"
    results = "测量结果"
    results_note = "n：给出 TTFT 的请求数；n < 20 时 P95 即最大值。"
    result_columns = ("并发", "方案", "Input TPS", "Output TPS", "TTFT P95", "TPOT P95", "n", "结论")
    level_column = "并发 / 速率"
    repeats = "重复运行"
    repeats_note = (
        "同一场景文件的多次运行。每次运行自身的值（其速率、其百分位）为一个观测：均值（最低 .. 最高；"
        "极差 = (最高 - 最低) / 均值）。运行数：有效 / 全部；测量点无效的运行不计入。"
    )
    repeats_columns = ("场景", "并发", "方案", "运行数", "Input TPS", "Output TPS", "TTFT P95", "TPOT P95")
    pooled_note = (
        "重复运行（结论后为有效 / 全部运行数）：数值为各次运行自身值的均值，P95 先在每次运行内计算，n 为各次之和。"
    )
    strong_repeats_note = (
        "加粗：在该并发下领先其他所有方案，差距超过噪声下限且置信区间不重叠。"
        "三次及以上时噪声下限取其极差，不足三次时至少 {floor:g} %。"
    )
    open_loop = "开环"
    open_loop_note = (
        "速率为每秒请求数：排定 / 实发 / 完成。P95 延迟分别自实际发送与自排定时刻起算；两者之差为客户端内的等待。"
    )
    open_loop_columns = (
        "场景",
        "档位",
        "方案",
        "排定",
        "实发",
        "完成",
        "迟发",
        "发送延迟 P50 / P99 / max",
        "TTFT P95",
        "E2E P95",
        "在飞峰值",
        "结论",
    )
    searches = ChineseSearches()
    artifacts = ChineseArtifacts()
    deployments = ChineseDeployments()
    boundary = "上下文边界"
    boundary_note = "输出 1 个 token：只验证容量与 prefill。"
    boundary_columns = (
        "输入长度",
        "方案",
        "已完成并发",
        "Input TPS（最低并发）",
        "TTFT P95（最高并发）",
        "未完成",
    )
    retest = "复测"
    retest_note = "在 {before} 中测得、在 {after} 中复测的测量点。本报告采用的数值正常显示，另一数值保留并划线。"
    retest_drifted = "{arms} 两次运行之间环境发生漂移：不对任何差异下结论。"
    retest_unclear = "无明显差异"
    retest_anchor = "锚点"
    retest_final: Mapping[str, str] = {"before": "复测前", "after": "复测后"}
    retest_columns = ("测量点", "指标", "复测前", "复测后", "变化", "采用")
    vram = "显存状态"
    vram_note = "在用 = 总量 - 空闲，取自有效点的加压时段。空载：就绪至首次加压之间的最小值。"
    vram_columns = ("方案", "GPU", "总量", "空载", "均值", "峰值", "最低余量", "峰值所在")
    vram_unavailable = "有效点没有 GPU 采样。"
    agreement = ChineseAgreement()
    appendix_windows = "附录 A：语料窗口"
    appendix_windows_note = (
        "请求文本起点的首个与末个 token 位置；每条记录都留有自己的窗口（window_start、window_end）。"
    )
    window_columns = ("测量点", "尝试", "结论", "测量窗口", "预热窗口")
    appendix_points = "附录 B：全量指标"
    appendix_columns = (
        "场景",
        "并发",
        "方案",
        "ok/n",
        "wall (s)",
        "out tok/s",
        "in tok/s",
        "TTFT mean / P95 / max",
        "TPOT mean / P95 / max",
        "回退",
        "accept",
        "显存峰值",
        "显存余量",
        "结论",
    )
    appendix_steady = "附录 C：稳态与客户端"
    steady_note = (
        "稳态：首次与末次在飞请求不少于 C 的 95 % 之间的时段；其延迟取在该时段内结束的请求。"
        "占比均相对全程墙钟。"
        "交接：一个请求结束到补位请求发出的时间。等待为客户端自身的等待。"
    )
    steady_columns = (
        "场景",
        "并发",
        "方案",
        "在飞峰值",
        "满并发占比",
        "交接 P50 / P99",
        "稳态占比",
        "Input TPS 全程 / 稳态",
        "Output TPS 全程 / 稳态",
        "TTFT P95 稳态",
        "TPOT P95 稳态",
        "建连等待 P95",
        "发送等待 P95",
    )
    appendix_intervals = "附录 D：置信区间"
    intervals_note = (
        "95 %，见方括号。百分位：取包住它的两个次序统计量；n 太小则不给出（—）："
        "P50 需 n ≥ 6，P95 需 n ≥ 72。"
        "稳态输出速率：稳态切成十段；若一段短于一个请求则不给出。没有任何区间的测量点不列出。"
    )
    interval_columns = (
        "场景",
        "并发",
        "方案",
        "n",
        "TTFT P50",
        "TTFT P95",
        "TPOT P50",
        "TPOT P95",
        "Output TPS 稳态",
    )
    invalid = "没有有效数值的测量点"
    invalid_columns = ("测量点", "结论", "原因（运行原文）")
    warnings = "警告"
    gpu_incomplete = "{point}：部分加压时段缺少 GPU 采样"
    notes = "说明"
    percentile_note = (
        "百分位采用 nearest-rank：n 个样本中第 ceil(p*n/100) 小的值；n < 20 时 P95 即最大值。"
        "失败请求不产生延迟样本，但始终计入 ok/n 的 n。"
    )
    queueing_note = "† 排队观察点：C 超过活跃上限，TTFT 含引擎内排队时间。"
    struck_note = "划线数值属于作废的测量点：保留，但不参与任何比较。"
    strong_note = "加粗：在该并发下领先其他所有方案，且差距超过噪声下限 {floor:g} %。"
    throughput_note = "Input / Output TPS：成功请求的 token 数 / 墙钟，墙钟 = 首个发送到最后一个结束。"
    inputs = "台账（sha256）"
    inputs_note = "运行时记录的输入，以及运行目录中各文件当前的摘要。"
    input_columns = ("文件", "sha256")
    reproduce = "复现"
    reproduce_measure = "重新测量（场景 sha256 {sha256}）："
    reproduce_report = "由留档分片重新生成表格与本报告，无需 Ray 与服务端："
    reproduce_query = "数值背后的逐请求记录，以一个测量点为例："
    verdicts: Mapping[str | None, str] = {
        "accepted": "有效",
        "imported": "导入",
        "void": "作废",
        "skipped": "结构性跳过",
        None: "未测",
    }
    yes = "是"
    no = "否"
    plots = ChinesePlots()
    page = ChinesePage()


CHINESE = ChineseText()
