"""The cluster file: how to reach a running Ray cluster, and how to lay raybench out on it.

Frozen, strict pydantic models like the scenario's, read by the same reader. A cluster file changes where
a scenario runs, never what it measures. Runs on the submitting machine; knows nothing of Ray.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError, model_validator

from raybench.errors import ConfigError, ConfigProblem
from raybench.scenario.load import load_model
from raybench.scenario.schema import Placement, Scenario, Tls, check_client_nodes
from raybench.scenario.values import Count, Headers, Model, Name, Url, VariableName, Words

#: What Ray's dashboard accepts for one uploaded package.
PACKAGE_BYTES_MAX = 100 * 1024 * 1024


def _refuse_secrets(variables: dict[str, str]) -> dict[str, str]:
    """Ray shows a runtime environment to everyone who may look at the job."""
    for name in variables:
        if name.upper().endswith(("_TOKEN", "_KEY", "_SECRET", "_PASSWORD")):
            raise ValueError(
                f"{name} looks like a secret, and Ray shows a runtime environment to everyone: "
                "set the variable on the nodes before `ray start`"
            )
    return variables


NodePath = Annotated[
    str,
    Field(pattern=r"^(/|~/)"),
    Words("a path on the head node, beginning with / or ~/"),
]


class RuntimeEnv(Model):
    """What Ray sets up for the job's processes on every node.

    env_vars: never secrets. pip: packages that Ray installs there before the start; empty = nothing is
    installed, the only way on a cluster without a package index.
    """

    env_vars: Annotated[dict[VariableName, str], AfterValidator(_refuse_secrets)] = Field(default_factory=dict)
    pip: list[str] = Field(default_factory=list)

    def as_ray_takes_it(self) -> dict[str, Any]:
        return {"env_vars": dict(self.env_vars), **({"pip": list(self.pip)} if self.pip else {})}


class Package(Model):
    """ship: upload this installation's own source, so that the nodes need raybench's dependencies only.

    With `ship: false` the nodes must have the same raybench installed. max_bytes: a larger package is
    refused before the upload; Ray's own limit is 100 MiB.
    """

    ship: bool = True
    max_bytes: Annotated[int, Field(ge=1, le=PACKAGE_BYTES_MAX)] = PACKAGE_BYTES_MAX


class ClusterLoad(Model):
    """Which of the scenario's `load` settings this cluster replaces; null keeps the scenario's.

    client_nodes and client_nodes_min go together: one that is written replaces both.
    """

    client_nodes: Count | None = None
    client_nodes_min: Count | None = None
    workers_per_node: Count | Literal["auto"] | None = None

    @model_validator(mode="after")
    def _nodes_fit(self) -> ClusterLoad:
        check_client_nodes(self.client_nodes, self.client_nodes_min)
        return self


class ClusterSpec(Model):
    """One YAML file of `clusters/`.

    address: the Job API, which is the dashboard's address. token_env: environment variable on this machine
    with Ray's token (RAY_AUTH_MODE=token); null when the cluster has none. headers and tls: for a proxy
    or TLS before the dashboard; tls.ca_file is a path on this machine. runs_dir: where the head node keeps
    run directories. placement: the keys that are written here replace the scenario's.
    """

    name: Name
    description: str = ""
    address: Url
    token_env: VariableName | None = None
    headers: Headers = Field(default_factory=dict)
    tls: Tls = Tls()
    runs_dir: NodePath = "~/raybench-runs"
    placement: Placement = Placement()
    load: ClusterLoad = ClusterLoad()
    runtime_env: RuntimeEnv = RuntimeEnv()
    package: Package = Package()

    @property
    def verify(self) -> bool | str:
        """Of the Job API's TLS: whether its certificate is checked, or a file of authorities to check it by."""
        return self.tls.ca_file or self.tls.verify


def cluster_at(address: str) -> ClusterSpec:
    """A cluster of which the Job API's address is all that is said. Raises ConfigError for no address."""
    try:
        return ClusterSpec(name="cluster", address=address)
    except ValidationError:
        problem = ConfigProblem("no address of a Job API", "--address", address, "one such as http://head:8265")
        raise ConfigError("options", problem) from None


def load_cluster(path: Path) -> ClusterSpec:
    """Read a cluster file. Raises ConfigError with all problems."""
    return load_model(ClusterSpec, path)


def on_cluster(scenario: Scenario, cluster: ClusterSpec) -> Scenario:
    """The scenario as it runs on this cluster: a new one with the cluster's placement and load settings.

    An empty value written in the cluster file (`client_labels: {}`) counts as written.
    """
    placement = {key: getattr(cluster.placement, key) for key in cluster.placement.model_fields_set}
    load = cluster.load.model_dump(exclude_none=True)
    if "client_nodes" in load or "client_nodes_min" in load:
        load |= cluster.load.model_dump(include={"client_nodes", "client_nodes_min"})
    return scenario.model_copy(
        update={
            "placement": scenario.placement.model_copy(update=placement),
            "load": scenario.load.model_copy(update=load),
        }
    )
