"""The blocks `launch` and `service`: parameters find their places, contradictions are refused."""

import pytest

from raybench.errors import ConfigError
from raybench.scenario.launch import Launch
from raybench.scenario.load import parse_scenario
from raybench.scenario.schema import Scenario

HEAD = """
name: test
workloads: [{name: w, input_tokens: 64, output_tokens: 4, concurrency: [1]}]
corpus: {synthetic: {tokens: 32k}}
"""


def arm(text: str) -> Scenario:
    return parse_scenario(HEAD + f"arms:\n  a: {text}\n", "test.yaml")


def refusal(text: str) -> tuple[str, str]:
    """(path, message) of the one problem."""
    with pytest.raises(ConfigError) as caught:
        arm(text)
    [problem] = caught.value.problems
    return problem.path, problem.message


def test_parameters_and_the_folder_are_put_where_they_stand_and_other_braces_stay() -> None:
    launch = Launch(
        argv=["serve", "--max-context", "{context}", "--json", '{"a": {b}}', "--log", "{folder}/requests.jsonl"],
        env={"CONTEXT": "{context}"},
        parameters={"context": 131072},
    )
    filled = launch.filled({"folder": "/run/arms/a"})
    assert filled.effective_argv == [
        *("serve", "--max-context", "131072", "--json", '{"a": {b}}'),
        *("--log", "/run/arms/a/requests.jsonl"),
    ]
    assert filled.env == {"CONTEXT": "131072"}
    assert launch.with_parameter("context", 4096).filled({}).effective_argv[2] == "4096"


def test_a_command_line_runs_in_a_shell() -> None:
    assert Launch(command="exec serve --port 1").effective_argv == ["/bin/sh", "-c", "exec serve --port 1"]


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        ("{url: 'http://h:1', launch: {}}", "arms.a.launch", "exactly one of `argv` and `command`"),
        (
            "{url: 'http://h:1', launch: {argv: [x], command: x}}",
            "arms.a.launch",
            "exactly one of `argv` and `command`",
        ),
        ("{sim: {}, launch: {argv: [x]}}", "arms.a.launch", "give `url`, not `sim`"),
        (
            "{url: 'http://h:1', launch: {argv: [x], parameters: {c: 1}}}",
            "arms.a.launch.parameters.c",
            "nothing uses it: write {c} where it belongs",
        ),
        (
            "{url: 'http://h:1', launch: {argv: ['{folder}'], parameters: {folder: 1}}}",
            "arms.a.launch.parameters.folder",
            "stands for a place",
        ),
        (
            "{url: 'http://h:1', launch: {argv: [x], ready: {log_pattern: '('}}}",
            "arms.a.launch.ready.log_pattern",
            "not a regular expression",
        ),
        (
            "{url: 'http://h:1', launch: {argv: [x], memory: {shortfall: '([0-9]+) MiB'}}}",
            "arms.a.launch.memory.shortfall",
            "names the number by its unit",
        ),
        (
            "{url: 'http://h:1', launch: {argv: [x], memory: {shortfall: '(?P<need_mib>1)'}}}",
            "arms.a.launch.memory.shortfall",
            "names the number by its unit",
        ),
    ],
)
def test_what_contradicts_itself_is_refused_where_it_stands(text: str, path: str, message: str) -> None:
    found, said = refusal(text)
    assert found == path
    assert message in said


@pytest.mark.parametrize("name", ["HF_TOKEN", "OPENAI_API_KEY", "my_secret", "PASSWORD"])
def test_a_credential_in_the_environment_is_refused_since_scenarios_are_kept(name: str) -> None:
    path, message = refusal(f"{{url: 'http://h:1', launch: {{argv: [x], env: {{{name}: abc}}}}}}")
    assert path == f"arms.a.launch.env.{name}"
    assert "export it on the target's host" in message


@pytest.mark.parametrize("word", ["--api-key", "--admin-api-key=abc", "--password"])
def test_a_credential_on_the_command_line_is_refused(word: str) -> None:
    path, message = refusal(f"{{url: 'http://h:1', launch: {{argv: [x, '{word}', abc]}}}}")
    assert path == "arms.a.launch.argv[1]"
    assert "$VARIABLE" in message


@pytest.mark.parametrize("word", ["--api-key abc", "--password=abc", "HF_TOKEN=abc"])
def test_a_credential_in_a_command_is_refused_unless_it_is_a_variable_s(word: str) -> None:
    path, message = refusal(f"{{url: 'http://h:1', launch: {{command: 'exec serve {word} --port 1'}}}}")
    assert path == "arms.a.launch.command"
    assert f"`{word.split('=')[0].split()[0]}` is given a credential" in message
    named = word.replace("abc", '"$KEY"')
    assert arm(f"{{url: 'http://h:1', launch: {{command: 'exec serve {named} --port 1'}}}}")


def test_words_that_only_look_like_credentials_are_fine() -> None:
    launch = "{argv: [x, --tokenizer, t, --max-token-len, '4'], env: {TOKENIZERS_PARALLELISM: 'false', KEYS: x}}"
    assert arm(f"{{url: 'http://h:1', launch: {launch}}}")


def test_a_service_is_not_started_by_its_deployment() -> None:
    with pytest.raises(ConfigError, match=r"service.deployment.*`bring_back` starts it"):
        parse_scenario(
            HEAD + "arms: {a: {sim: {}}}\nservice: {deployment: {sim: {}}, take_down: [x], bring_back: [x]}\n", "f"
        )


def test_what_nothing_reads_of_a_service_s_deployment_is_refused() -> None:
    service = (
        "service: {deployment: {url: 'http://h:1', limits: {page_tokens: 16}}, take_down: [x], bring_back: [x]}"
    )
    with pytest.raises(ConfigError, match=r"service.deployment.limits \(line 6\): says nothing of a service"):
        parse_scenario(HEAD + f"arms: {{a: {{sim: {{}}}}}}\n{service}\n", "f")


@pytest.mark.parametrize("pattern", ["(?P<mib>[0-9]+) MiB short", "(?P<need_bytes>.+) > (?P<have_bytes>.+)"])
def test_memory_patterns_name_units(pattern: str) -> None:
    scenario = arm(f"{{url: 'http://h:1', launch: {{argv: [x], memory: {{slack: '{pattern}'}}}}}}")
    launch = scenario.arms["a"].launch
    assert launch is not None
    assert launch.memory.slack == pattern
