"""Commands that need no Ray: monitor, and those that read run directories and tables (merge, compare, reconcile).

`cli.py` registers them. The rooms are imported inside the commands, so that `--help` stays quick.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raybench.arguments import RunPath, err, out
from raybench.errors import EXIT_NOT_ALL_VALID, ConfigError, ConfigProblem

if TYPE_CHECKING:
    from raybench.report.document import Told

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, in full precision, instead of tables.")]
AsMarkdown = Annotated[bool, typer.Option("--markdown", help="Print Markdown instead of tables for the terminal.")]
Metrics = Annotated[
    list[str] | None, typer.Option("--metric", help="Compare this column of points.parquet; may be given again.")
]
NoiseFloor = Annotated[
    float, typer.Option("--noise-floor", help="Percent below which single runs are not called different.", min=0)
]


def monitor(
    folder: Annotated[Path, typer.Option("--out", help="Folder for the file of samples.", show_default=False)],
    interval_s: Annotated[float, typer.Option(min=0.02, max=60.0, help="Seconds between two samples.")] = 0.5,
    source: Annotated[str, typer.Option(help="nvml, or sim for the simulated engine at --url.")] = "nvml",
    url: Annotated[str | None, typer.Option(help="Simulated engine, with --source sim.")] = None,
) -> None:
    """Sample this host's GPUs into a file, without Ray, until Ctrl-C; `merge --monitor` takes it into a run."""
    from raybench.monitors.gpu import GpuSource
    from raybench.monitors.nvml import NvmlSource
    from raybench.monitors.recording import monitor_host
    from raybench.monitors.sim_gpu import HttpGpuSource

    if source not in ("nvml", "sim"):
        raise ConfigError("options", ConfigProblem("no such source", "--source", source, "nvml, sim"))
    if (source == "sim") != (url is not None):
        raise ConfigError("options", "--url belongs to --source sim, and --source sim needs it")
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    devices: GpuSource = NvmlSource() if url is None else HttpGpuSource(url)

    def say(text: str) -> None:
        out.print(text, soft_wrap=True)

    monitor_host(devices, folder, interval_s, stop, say)
    for warning in devices.warnings:
        err.print(f"warning: {warning}", soft_wrap=True)


def merge(
    run: RunPath,
    monitor_files: Annotated[
        list[Path] | None, typer.Option("--monitor", help="File of `raybench monitor` to take in first.")
    ] = None,
    offset_ms: Annotated[
        float | None,
        typer.Option(
            help="Wall clock of the --monitor host minus the coordinator's, in ms; without it 0 is assumed."
        ),
    ] = None,
    uncertainty_ms: Annotated[
        float | None, typer.Option(min=0.0, help="How far off that offset may be, in ms; 1000 by default.")
    ] = None,
) -> None:
    """Make the Parquet files of a run directory from its parts. Needs no Ray and no server."""
    from raybench.analysis.merge import merge as merge_run
    from raybench.analysis.monitor_files import take_in
    from raybench.records.rundir import RunDirectory

    directory = RunDirectory(run)
    directory.require()
    if not monitor_files and (offset_ms, uncertainty_ms) != (None, None):
        raise ConfigError("options", "--offset-ms and --uncertainty-ms are those of a --monitor file: name one")
    for path in monitor_files or []:
        taken = take_in(directory, path, offset_ms=offset_ms, uncertainty_ms=uncertainty_ms)
        out.print(f"{path}: {taken.told}", soft_wrap=True)
    for warning in merge_run(directory):
        err.print(f"warning: {warning}", soft_wrap=True)
    out.print(f"{run}: merged")


class Language(StrEnum):
    EN = "en"
    ZH = "zh"


class ImageKind(StrEnum):
    SVG = "svg"
    PNG = "png"


def report(
    runs: Annotated[
        list[str], typer.Argument(help="RUN, or RUN:ARM; the arms of all stand side by side.", show_default=False)
    ],
    lang: Annotated[Language, typer.Option("--lang", help="Language of the report.")] = Language.EN,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Folder for the report; by default the run's own.", show_default=False
        ),
    ] = None,
    images: Annotated[
        ImageKind | None,
        typer.Option("--images", help="Also write every figure into plots/, and show them in the Markdown."),
    ] = None,
    pool: Annotated[
        bool, typer.Option("--pool", help="Runs of one scenario are repeats: one row a point, with the spread.")
    ] = False,
) -> None:
    """Write report.md, report.html and report.json of one run or several, and print the table of points."""
    from raybench.records.rundir import RunDirectory
    from raybench.report.repeats import pool_repeats
    from raybench.report.service import say_service
    from raybench.report.source import read_source, run_and_arm
    from raybench.report.terminal import print_points
    from raybench.report.text import ENGLISH
    from raybench.report.text_zh import CHINESE
    from raybench.report.write import write_report

    named = [run_and_arm(one) for one in runs]
    only = {path: {arm for run, arm in named if run == path and arm is not None} for path, _ in named}
    only |= {path: set() for path, arm in named if arm is None}  # a run that is named whole is told whole
    if output is None and (len(only) > 1 or any(only.values())):
        told = "a report of several runs, or of some arms, needs a folder of its own"
        raise ConfigError("options", ConfigProblem(told, way_out="--output FOLDER"))
    directories = [RunDirectory(path) for path in only]
    source = read_source(*directories, only=only)
    pooled = pool_repeats(source) if pool else None
    text = {Language.EN: ENGLISH, Language.ZH: CHINESE}[lang]
    written = write_report(source, output or directories[0].path, text, images=images, pooled=pooled)
    print_points(pooled or source, out, text)
    for path in (written.markdown, written.page):
        out.print(f"report: {path}", soft_wrap=True)
    for directory in directories:
        say_service(directory, out)


def import_table(
    table: Annotated[
        Path, typer.Argument(help="CSV file, or a YAML file that says what is in one.", show_default=False)
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Run directory to make; runs/<name> by default.")
    ] = None,
) -> None:
    """Make a run directory of a table that somebody else measured, for report, compare and query."""
    from raybench.report.published import read_published, write_imported

    read = read_published(table)
    run = write_imported(read, output or Path("runs") / read.about.name)
    if read.left_out:
        names = ", ".join(read.left_out)
        err.print(f"warning: columns that raybench does not know: {names}", soft_wrap=True)
    out.print(f"{run.path}: {len(read.points)} points imported", soft_wrap=True)


def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="Run directory, or RUN:ARM.", show_default=False)],
    b: Annotated[
        str | None,
        typer.Argument(metavar="B", help="What is held against A: run directory, or RUN:ARM.", show_default=False),
    ] = None,
    repeat_a: Annotated[
        list[str] | None, typer.Option(help="One more run of A's points (again for more).")
    ] = None,
    repeat_b: Annotated[
        list[str] | None, typer.Option(help="One more run of B's points (again for more).")
    ] = None,
    baseline: Annotated[Path | None, typer.Option(help="Published numbers (YAML or CSV) in place of B.")] = None,
    metric: Metrics = None,
    noise_floor: NoiseFloor = 3.0,
    ignore_cache_state: Annotated[
        bool, typer.Option("--ignore-cache-state", help="Compare a cold point with one that is not.")
    ] = False,
    fail_on_regression: Annotated[
        bool, typer.Option("--fail-on-regression", help="Exit 1 when any metric of B is clearly worse.")
    ] = False,
    as_json: AsJson = False,
    as_markdown: AsMarkdown = False,
) -> None:
    """Hold B against A, point by point: what differs in the conditions first, then better, worse or neither."""
    metrics = _known(metric)
    if baseline is not None:
        if b is not None or repeat_a or repeat_b or ignore_cache_state or fail_on_regression:
            message = "--baseline stands in place of B, without repeats, cache state, or a verdict to fail on"
            raise ConfigError("options", message)
        _show_baseline(a, baseline, metrics, as_json, as_markdown)
        return
    if b is None:
        raise ConfigError("options", "nothing to hold against A: name a second run, or --baseline FILE")
    from raybench.report.compare import compare_runs, comparison_blocks, comparison_json

    comparison = compare_runs(
        [a, *(repeat_a or [])],
        [b, *(repeat_b or [])],
        metrics,
        noise_floor,
        ignore_cache_state=ignore_cache_state,
    )
    _show(comparison_json(comparison), comparison_blocks(comparison), as_json, as_markdown)
    if fail_on_regression and comparison.regressed:
        raise typer.Exit(EXIT_NOT_ALL_VALID)


def _known(names: list[str] | None) -> tuple[str, ...]:
    """The metrics to compare, each once. Raises ConfigError for one that has no better and worse."""
    from raybench.analysis.difference import DIRECTIONS, HEADLINE_METRICS

    wrong = [name for name in names or () if name not in DIRECTIONS]
    if wrong:
        allowed = ", ".join(DIRECTIONS)
        problems = [ConfigProblem("has no better and worse", value=name, allowed=allowed) for name in wrong]
        raise ConfigError("--metric", problems)
    return tuple(dict.fromkeys(names or HEADLINE_METRICS))


def _show_baseline(run: str, baseline: Path, metrics: tuple[str, ...], as_json: bool, as_markdown: bool) -> None:
    from raybench.report.baseline import baseline_blocks, baseline_json, compare_baseline

    comparison = compare_baseline(run, baseline, metrics)
    _show(baseline_json(comparison), baseline_blocks(comparison), as_json, as_markdown)


def retest(
    before: Annotated[str, typer.Argument(help="The earlier run: RUN, or RUN:ARM.", show_default=False)],
    after: Annotated[str, typer.Argument(help="The run that repeats some of its points.", show_default=False)],
    anchor: Annotated[
        list[str] | None,
        typer.Option(help="Repeated though unaffected: WORKLOAD/c8 or ARM/WORKLOAD/c8; may be given again."),
    ] = None,
    drift_limit: Annotated[
        float,
        typer.Option(
            "--drift-limit", help="Percent by which an anchor's throughput may move without being drift.", min=0
        ),
    ] = 3.0,
    final: Annotated[
        str | None,
        typer.Option(help="Whose values count, before or after; by default after, or before where it drifted."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Run directory to make of the values that count.")
    ] = None,
    metric: Metrics = None,
    noise_floor: NoiseFloor = 3.0,
    as_json: AsJson = False,
    as_markdown: AsMarkdown = False,
) -> None:
    """Show repeated points before and after, with the drift of anchors; above the limit nothing is claimed.

    Exit code 1 when the environment drifted.
    """
    from raybench.analysis.retest import Final
    from raybench.report.retest import compare_retest, retest_blocks, retest_json, write_final

    if final is not None and final not in tuple(Final):
        raise ConfigError("--final", ConfigProblem("no such side", value=final, allowed="before, after"))
    result = compare_retest(
        before,
        after,
        anchor or [],
        _known(metric),
        floor_percent=noise_floor,
        drift_limit_percent=drift_limit,
        final=None if final is None else Final(final),
    )
    _show(retest_json(result), retest_blocks(result), as_json, as_markdown)
    if output is not None:
        write_final(result, output)
        err.print(f"{output}: the values that count", soft_wrap=True)
    if not result.may_claim:
        raise typer.Exit(EXIT_NOT_ALL_VALID)


def query(
    run: RunPath,
    sql: Annotated[
        str | None,
        typer.Argument(help="One SELECT; without it, the views and their columns are listed.", show_default=False),
    ] = None,
    form: Annotated[str, typer.Option("--format", help="table, csv, json or parquet.")] = "table",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write the answer to.")] = None,
) -> None:
    """Ask a run directory in SQL: views points, requests, chunks, gpu, server, worker and findings."""
    from raybench.records.rundir import RunDirectory
    from raybench.report.query import FORMATS, Query, write_answer
    from raybench.report.terminal import print_blocks

    if form not in FORMATS:
        raise ConfigError("--format", ConfigProblem("no such format", value=form, allowed=", ".join(FORMATS)))
    with Query(RunDirectory(run)) as asked:
        if sql is None:
            print_blocks(asked.columns(), out)
            return
        count = write_answer(asked.rows(sql), form, output, out)
    if output is not None:
        err.print(f"{output}: {count:,} rows", soft_wrap=True)


def reconcile(
    run: RunPath,
    as_json: AsJson = False,
    as_markdown: AsMarkdown = False,
) -> None:
    """Hold the records of a run against what the engine said of itself; exit code 1 when they differ."""
    from raybench.analysis.agreement import read_agreements
    from raybench.records.rundir import RunDirectory
    from raybench.report.agreement import agreement_answer
    from raybench.report.text import ENGLISH

    directory = RunDirectory(run)
    directory.require()
    agreements = read_agreements(directory)
    _show([asdict(one) for one in agreements], agreement_answer(agreements, ENGLISH), as_json, as_markdown)
    if any(one.flagged for one in agreements):
        raise typer.Exit(EXIT_NOT_ALL_VALID)


def _show(for_programs: object, blocks: Iterable[Told], as_json: bool, as_markdown: bool) -> None:
    from raybench.records.strict_json import to_json
    from raybench.report import markdown
    from raybench.report.terminal import print_blocks

    if as_json and as_markdown:
        raise ConfigError("options", "--json and --markdown are two forms of one answer; give one")
    if as_json:
        print(to_json(for_programs))
    elif as_markdown:
        print(markdown.answer(blocks), end="")
    else:
        print_blocks(blocks, out)
