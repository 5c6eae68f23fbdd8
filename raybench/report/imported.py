"""A published table -> a run directory that `report`, `compare` and `query` read like any other.

Its manifest, its facts and every point say that the numbers were imported; there are no records, no journal
and no parts, since nothing was measured here.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyarrow.parquet as pq

import raybench
from raybench.analysis.points import IMPORTED, points_table
from raybench.records.rundir import RunDirectory, replacing, write_json
from raybench.report.published import PublishedTable


def write_imported(table: PublishedTable, path: Path) -> RunDirectory:
    """Make the run directory. Raises RunDirectoryError when something is there already."""
    run = RunDirectory(path)
    run.create()
    about = table.about
    for arm in dict.fromkeys(str(point["arm"]) for point in table.points):
        write_json(run.arm(arm) / "facts.json", declared_facts(table, arm))
    with replacing(run.points_parquet) as beside:
        pq.write_table(points_table(table.points), beside, compression="zstd")
    write_json(
        run.manifest,
        {
            "run_id": path.name,
            "raybench_version": raybench.__version__,
            "provenance": IMPORTED,
            "imported": {
                "name": about.name,
                "source": about.source,
                "file": {"name": table.file.name, "sha256": hashlib.sha256(table.file.read_bytes()).hexdigest()},
                "conditions": about.conditions,
                "not_stated": about.not_stated,
                "columns_left_out": table.left_out,
            },
            "points": [
                {name: point.get(name) for name in ("point_id", "arm", "workload", "concurrency")}
                for point in table.points
            ],
        },
    )
    return run


def declared_facts(table: PublishedTable, arm: str) -> dict[str, object]:
    """What the table's source states of an arm, its limits included."""
    known = table.about.arms.get(arm)
    if known is None:
        return {"provenance": IMPORTED}
    limits = {name: value for name, value in known.limits.model_dump().items() if value}
    return {"provenance": IMPORTED, **known.facts, **limits}
