"""Scenario files: what is accepted, and what a person is told when it is not (cases O-C1, O-C2)."""

import json
from pathlib import Path

import pytest

from raybench.errors import EXIT_USAGE, ConfigError, ConfigProblem
from raybench.scenario.levels import Level
from raybench.scenario.load import FILE_BYTES_MAX, effective, load_scenario, parse_scenario, scenario_sha256
from raybench.scenario.schema import Scenario

SCENARIO = """\
name: small
arms:
  mine: {url: "http://host:30000"}
workloads:
  - name: w
    input_tokens: 16k
    output_tokens: 512
    concurrency: [1, 8]
corpus:
  synthetic: {}
"""


def changed(old: str, new: str, text: str = SCENARIO) -> str:
    assert text.count(old) == 1, old
    return text.replace(old, new)


def problems_of(text: str) -> list[ConfigProblem]:
    with pytest.raises(ConfigError) as caught:
        parse_scenario(text, "s.yaml")
    assert caught.value.exit_code == EXIT_USAGE
    assert caught.value.source == "s.yaml"
    return caught.value.problems


def problem_of(text: str) -> ConfigProblem:
    [problem] = problems_of(text)
    return problem


def test_a_scenario_is_read_with_its_defaults() -> None:
    scenario = parse_scenario(SCENARIO, "s.yaml")
    [workload] = scenario.workloads
    assert (workload.input_tokens, workload.output_tokens, workload.concurrency) == (16384, 512, [1, 8])
    assert (workload.request_count(Level(1)), workload.request_count(Level(8))) == (8, 16)
    assert scenario.arms["mine"].effective_route == "generate"


# O-C1: unknown keys


def test_o_c1_a_misspelt_key_is_named_with_path_line_value_and_the_nearest_key() -> None:
    problem = problem_of(changed("concurrency: [1, 8]", "concurency: [64]"))
    assert (problem.path, problem.line, problem.value) == ("workloads[0].concurency", 8, "[64]")
    assert problem.way_out == "`concurrency`"
    assert "input_tokens" in str(problem.allowed)


def test_o_c1_the_case_s_own_input_gives_all_its_errors_at_once() -> None:
    text = "points: [{input_len: 16384, output_len: 512, concurency: 64}]\nflush: {hit_limt: 0.01}\n"
    found = {problem.path: problem for problem in problems_of(SCENARIO + text)}
    assert list(found) == ["points", "flush"]
    assert (found["points"].message, found["points"].line) == ("unknown key", 11)
    assert found["flush"].way_out == "move it to `guards.flush`"
    entry = "  - {input_len: 16384, output_len: 512, concurency: 64, name: x}\n"
    found = {problem.path: problem for problem in problems_of(changed("corpus:\n", f"{entry}corpus:\n"))}
    assert {path: problem.way_out for path, problem in found.items()} == {
        "workloads[1].input_len": "`input_tokens`",
        "workloads[1].output_len": "`output_tokens`",
        "workloads[1].concurency": "`concurrency`",
    }
    assert {problem.line for problem in found.values()} == {9}


@pytest.mark.parametrize(
    ("old", "new", "path", "way_out"),
    [
        # one or more levels too high
        (
            "name: small",
            "name: small\nhit_rate_max: 0.01",
            "hit_rate_max",
            "move it to `guards.hit_rate_max`",
        ),
        (
            "    output",
            "    minimum: 4\n    output",
            "workloads[0].minimum",
            "or `workloads[0].requests.minimum`",
        ),
        (
            '{url: "http://host:30000"}',
            '{url: "http://host:30000", context_tokens: 32k}',
            "arms.mine.context_tokens",
            "move it to `arms.mine.limits.context_tokens`",
        ),
        (
            "name: small",
            "name: small\nsynthetic: {}",
            "synthetic",
            "move it to `corpus.synthetic`",
        ),
        ("name: small", "name: small\npage_tokens: 16", "page_tokens", "`arms.<name>.limits.page_tokens`"),
        # too low
        (
            "    output",
            "    placement: {}\n    output",
            "workloads[0].placement",
            "move it to the top level, as `placement`",
        ),
        (
            "{}",
            "{placement: {}}",
            "corpus.synthetic.placement",
            "move it to the top level, as `placement`",
        ),
        # in the wrong branch, and misspelt at the top
        (
            "    output",
            "    attempts_max: 4\n    output",
            "workloads[0].attempts_max",
            "move it to `guards.attempts_max`",
        ),
        (
            "name: small",
            "name: small\ntime_compresion: 2",
            "time_compresion",
            "`arms.<name>.sim.time_compression`",
        ),
        # a deep block
        (
            "name: small",
            "name: small\nload: {request: {idle_timeout: 3}}",
            "load.request.idle_timeout",
            "`idle_timeout_s`",
        ),
    ],
)
def test_o_c1_a_key_at_the_wrong_place_is_told_where_it_belongs(
    old: str, new: str, path: str, way_out: str
) -> None:
    problem = problem_of(changed(old, new))
    assert problem.path == path
    assert way_out in str(problem.way_out)


def test_o_c1_an_unknown_top_level_block_names_the_blocks_there_are() -> None:
    problem = problem_of(SCENARIO + "zzz:\n  a: 1\n")
    assert (problem.path, problem.line, problem.way_out) == ("zzz", 11, None)
    assert problem.allowed == (
        "the keys name, description, arms, workloads, corpus, gate, guards, load, monitors, placement, service"
    )


def test_an_arm_s_key_without_an_arm_s_name_is_understood() -> None:
    problem = problem_of(changed('  mine: {url: "http://host:30000"}', "  url: http://host:30000"))
    assert problem.path == "arms.url"
    assert "one level lower, under a name" in str(problem.way_out)


def test_a_missing_key_is_named_with_what_it_takes() -> None:
    problem = problem_of(changed("    input_tokens: 16k\n", ""))
    assert (problem.message, problem.path, problem.line) == (
        "required key is missing",
        "workloads[0].input_tokens",
        5,
    )
    assert "16k" in str(problem.allowed)


# O-C2: YAML 1.1 surprises


@pytest.mark.parametrize(
    ("written", "message", "way_out"),
    [
        ("on", "not a whole number", None),
        ("010", "not a whole number", "10"),
        ("08", "not a whole number", "8"),
        ("1:30", "not a whole number", "one plain number, in the unit that the key names"),
        ("12:30:00", "not a whole number", "one plain number, in the unit that the key names"),
        ("1e3", "not a whole number", "1000"),
        ("16_384", "not a whole number", "16384"),
        ("64.0", "not a whole number", "64"),
        ("64.5", "not a whole number", None),
        ("1.25e-12", "not a whole number", None),
        ("-1", "out of range", None),
        ("0", "out of range", None),
        ('"64"', "not a whole number", "64"),
        ("16k", "not a whole number", "16384 (sizes such as 16k are for token counts only)"),
        (".inf", "not a whole number", None),
        ("true", "not a whole number", None),
        ("99999999999999999999", "a number of more than 18 digits", None),
    ],
)
def test_o_c2_a_value_that_is_no_concurrency_is_refused_with_its_raw_text(
    written: str, message: str, way_out: str | None
) -> None:
    problem = problem_of(changed("[1, 8]", f"[{written}]"))
    assert problem == ConfigProblem(
        message,
        path="workloads[0].concurrency[0]",
        value=written,
        allowed="a whole number from 1",
        way_out=way_out,
        line=8,
    )
    bare = problem_of(changed("[1, 8]", written))
    assert (bare.path, bare.value, bare.way_out) == ("workloads[0].concurrency", written, f"[{written}]")


def test_o_c2_a_key_given_twice_is_an_error() -> None:
    problem = problem_of(changed("concurrency: [1, 8]", "concurrency: [8]\n    concurrency: [8]"))
    assert (problem.message, problem.path, problem.line) == ("key given twice", "workloads[0].concurrency", 9)
    assert problem.value == "[8]"


@pytest.mark.parametrize(
    ("written", "tokens"),
    [("16k", 16384), ("16K", 16384), ("1m", 1048576), ("896k", 917504), ("16384", 16384)],
)
def test_o_c2_token_sizes_count_in_1024(written: str, tokens: int) -> None:
    assert parse_scenario(changed("16k", written), "s.yaml").workloads[0].input_tokens == tokens


@pytest.mark.parametrize("written", ["16kb", "1.5k", "0k", "k", "1e3", "16_384", "16 k", "-1k", "1g", '"16384"'])
def test_o_c2_other_sizes_are_refused_with_their_raw_text(written: str) -> None:
    problem = problem_of(changed("16k", written))
    assert (problem.path, problem.value) == ("workloads[0].input_tokens", written)
    assert problem.allowed == "a token count from 1: 16384, 16k (x 1024) or 1m (x 1024 x 1024)"


@pytest.mark.parametrize(
    ("written", "way_out"),
    [("on", "true"), ("yes", "true"), ("off", "false"), ("True", None), ('"true"', None), ("1", None)],
)
def test_o_c2_truth_values_are_true_and_false_only(written: str, way_out: str | None) -> None:
    problem = problem_of(changed("    output", f"    stream: {written}\n    output"))
    assert (problem.message, problem.value, problem.way_out) == ("not true or false", written, way_out)


@pytest.mark.parametrize(
    ("written", "way_out"),
    [
        ("1e3", "1000"),
        ("on", '"on" if text is meant'),
        (".5", "0.5"),
        ("0.90e0", "0.9"),
        ("2026-01-01", None),
    ],
)
def test_o_c2_where_anything_is_allowed_an_unclear_text_is_refused_too(written: str, way_out: str | None) -> None:
    text = changed('30000"}', f'30000", extra_body: {{sampling_params: [{{top_p: {written}}}]}}}}')
    problem = problem_of(text)
    assert (problem.path, problem.value) == ("arms.mine.extra_body.sampling_params[0].top_p", written)
    assert way_out is None or problem.way_out == way_out


def test_o_c2_the_values_in_effect_are_echoed() -> None:
    echoed = effective(parse_scenario(SCENARIO, "s.yaml"))
    assert json.loads(json.dumps(echoed, allow_nan=False)) == echoed
    assert echoed["workloads"][0]["input_tokens"] == 16384
    assert echoed["workloads"][0]["prewarm_requests"] == 2
    assert echoed["arms"]["mine"]["route"] == "generate"
    assert echoed["guards"]["hit_rate_max"] == 0.01


# what else goes wrong


def test_all_errors_come_at_once_in_the_order_of_the_lines() -> None:
    text = changed("16k", "1e3", changed("[1, 8]", "[0, 8, on]", changed("http:", "ftp:")))
    found = problems_of(text + "guards: {strict: 1, hit_rate_max: 2, on_void: halt}\nseed: -1\nseed: 2\n")
    assert [(problem.line, problem.path) for problem in found] == [
        (3, "arms.mine.url"),
        (6, "workloads[0].input_tokens"),
        (8, "workloads[0].concurrency[0]"),
        (8, "workloads[0].concurrency[2]"),
        (11, "guards.hit_rate_max"),
        (11, "guards.on_void"),
        (11, "guards.strict"),
        (12, "seed"),
        (13, "seed"),
    ]
    assert all(problem.allowed or "twice" in problem.message for problem in found)


@pytest.mark.parametrize(
    ("old", "new", "path", "part"),
    [
        ("{}", "{}\n  path: x.npy", "corpus", "exactly one of `path` and `synthetic`"),
        ('{url: "http://host:30000"}', "{model: m}", "arms.mine", "exactly one of `url` and `sim`"),
        ('30000"', '30000", engine: vllm, route: generate', "arms.mine", "on sglang only"),
        ("[1, 8]", "[8, 1, 8]", "workloads[0].concurrency[2]", "listed twice"),
        ("[1, 8]", "[]", "workloads[0].concurrency", "empty"),
        ("[1, 8]", "[64]\n    requests: 32", "workloads[0].requests", "32 requests can never be 64 at once"),
        ("[1, 8]", "[1]\n    arms: [mine, yours]", "workloads[0].arms[1]", "no such arm"),
        (
            "corpus:",
            "  - {name: w, input_tokens: 1, output_tokens: 1, concurrency: [1]}\ncorpus:",
            "workloads[1].name",
            "another workload",
        ),
        (
            "name: small",
            "name: small\nload: {client_nodes: 2, client_nodes_min: 3}",
            "load.client_nodes_min",
            "more than client_nodes",
        ),
        ('30000"', '30000", headers: {authorization: x}', "arms.mine.headers", "credential"),
        ("http://host:30000", "http://user:secret@host", "arms.mine.url", "holds a user name or password"),
        ("  mine:", "  my arm:", "arms.my arm", "not in the right form"),
        ("name: small", "name: 16", "name", "not text"),
        ("name: small", "name:", "name", "nothing is given"),
        ("name: small", "name: small\nguards:", "guards", "nothing is given"),
        ("name: small", "name: small\nload: 3", "load", "not a block of keys"),
        ("[1, 8]", "[1]\n    requests: {minimum: 0}", "workloads[0].requests.minimum", "out of range"),
        ("[1, 8]", "[1]\n    requests: many", "workloads[0].requests", "not a whole number"),
    ],
)
def test_a_value_that_does_not_fit_is_named_at_its_place(old: str, new: str, path: str, part: str) -> None:
    problem = problem_of(changed(old, new))
    assert problem.path == path
    assert part in problem.message
    assert "pydantic" not in str(problem)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        # units that are in the key's name already
        (
            "name: small",
            "name: small\nguards: {idle_timeout_s: 5m}",
            "got: 5m; try: 300; allowed: a number above",
        ),
        ("name: small", "name: small\nguards: {idle_timeout_s: 300ms}", "try: 0.3;"),
        ("name: small", "name: small\nguards: {clock_offset_ms_max: 2s}", "try: 2000;"),
        ("name: small", "name: small\nguards: {hit_rate_max: 5%}", "try: 0.05; allowed: a number from 0 to 1"),
        ("concurrency: [1, 8]", "search: {maximum: 8, slo: {ttft_ms_p95: 500ms}}", "try: 500;"),
        (
            "concurrency: [1, 8]",
            "rate_per_s: [5m]\n    duration_s: 9",
            "not a number; got: 5m; allowed: a number above 0",
        ),
        # what is given where nothing, a block, a list or some words are asked
        (
            "workloads:",
            "  two:\nworkloads:",
            "arms.two (line 4): nothing is given; got: nothing; allowed: a block",
        ),
        ("{}", "{}\nload:", "try: give a value, or leave the key out to get the default; allowed: a block (Load)"),
        ("  synthetic: {}", "  corpora/pg19", "got: corpora/pg19; allowed: a block with the keys path, synthetic"),
        ("  mine: {", "  - {name: mine, ", "try: write each entry as `key: value`, without `- `"),
        ("url:", "engine: SGLang, url:", "try: sglang; allowed: one of sglang, vllm, openai, llamacpp"),
        ("url:", "engine: trtllm, url:", "got: trtllm; allowed: one of sglang, vllm"),
        ("{}", "{}\nload: {workers_per_node: all}", "got: all; allowed: a whole number from 1 or auto"),
        ("{}", "{}\nload: {workers_per_node: 0}", "out of range; got: 0; allowed: a whole number from 1 or auto"),
        # addresses
        ('"http://host:30000"', "host:30000", "not begin with http:// or https://: write http://host:30000; got"),
        ('"http://host:30000"', "30000", "not text; got: 30000; allowed: an address such as"),
        ("host:30000", "host:300000", "a port that is not from 1 to 65535; got"),
        ("host:30000", "host:abc", "a port that is not from 1 to 65535; got"),
        ("host:30000", ":30000", "no host"),
        ("host:30000", "[fd00::2:30000", "no host"),
        ("host:30000", "host:30000?key=1", "leave what begins with `?` or `#` out"),
        ("host:30000", "host:30000/v1/", "begin with /v1 themselves: leave it out"),
        ("host:30000", "host:30000 ", "white space in an address"),
        ('30000"', '30000", control_urls: ["http://b:1", "http://b:1"]', "control_urls[1] (line 3): listed twice"),
        # what is missing, with the line of the block that it is missing from
        ("corpus:\n  synthetic: {}\n", "", "corpus: required key is missing: workloads without a `prompt_set`"),
        ("concurrency: [1, 8]", "rate_per_s: [1]", "workloads[0].duration_s (line 5): a rate needs exactly one"),
    ],
)
def test_a_typical_slip_is_told_with_the_way_out(old: str, new: str, told: str) -> None:
    assert told in str(problem_of(changed(old, new)))


@pytest.mark.parametrize("url", ["http://h", "https://h:1/prefix", "http://[fd00::2]:30000", "http://10.0.0.5:1/"])
def test_addresses_of_servers(url: str) -> None:
    assert parse_scenario(changed("http://host:30000", url), "s.yaml").arms["mine"].url == url


def test_what_is_asked_until_it_answers_may_have_a_query() -> None:
    launch = "url: 'http://host:30000', launch: {argv: [serve], ready: {url: 'http://host:1/health?deep=1'}}"
    read = parse_scenario(changed('url: "http://host:30000"', launch), "s.yaml").arms["mine"].launch
    assert read is not None
    assert read.ready.url == "http://host:1/health?deep=1"


def test_no_limit_is_null_and_a_wish_for_infinity_is_told_so() -> None:
    limits = "load: {request: {request_timeout_s: null, idle_timeout_s: 60}}\n"
    request = parse_scenario(SCENARIO + limits, "s.yaml").load.request
    assert (request.request_timeout_s, request.idle_timeout_s) == (None, 60.0)
    problem = problem_of(SCENARIO + "load: {request: {request_timeout_s: .inf}}\n")
    assert (problem.value, problem.way_out) == (".inf", "null")


def test_a_near_choice_is_proposed() -> None:
    problem = problem_of(changed("[1, 8]", "[1]\n    over_active_limit: skipp"))
    assert (problem.way_out, problem.allowed) == ("skip", "one of queue, skip")


def test_a_file_that_is_no_block_of_keys_is_an_error() -> None:
    assert "not a block of keys" in problem_of("- a\n- b\n").message
    assert "not a block of keys" in problem_of("just text\n").message


def test_files_that_cannot_be_read_are_config_errors(tmp_path: Path) -> None:
    good = tmp_path / "16k.yaml"
    good.write_bytes(b"\xef\xbb\xbf" + SCENARIO.replace("\n", "\r\n").encode())
    assert load_scenario(good) == parse_scenario(SCENARIO, "s.yaml")
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"name: x\ndescription: caf\xe9\n")
    large = tmp_path / "large.yaml"
    large.write_bytes(b"#" * (FILE_BYTES_MAX + 1))
    empty = tmp_path / "empty.yaml"
    empty.write_bytes(b"")
    for path, part in [
        (tmp_path / "16k.yml", f"no such file; try: {good}"),
        (tmp_path, "cannot be read: Is a directory"),
        (latin, "line 2: not UTF-8 text; got: b'\\xe9'"),
        (large, "larger than"),
        (empty, "the file is empty"),
    ]:
        with pytest.raises(ConfigError) as caught:
            load_scenario(path)
        assert str(caught.value).startswith(f"{path}: ")
        assert part in str(caught.value)


# identity


def test_the_effective_scenario_is_a_scenario_that_measures_the_same() -> None:
    scenario = parse_scenario(SCENARIO, "s.yaml")
    again = Scenario.model_validate(effective(scenario))
    assert effective(again) == effective(scenario)
    assert scenario_sha256(again) == scenario_sha256(scenario)


def test_the_sha256_follows_the_meaning_not_the_layout() -> None:
    sha256 = scenario_sha256(parse_scenario(SCENARIO, "s.yaml"))
    same = changed("16k", "16384", changed("name: small", "# a comment\nname: 'small'\nguards: {strict: true}"))
    assert scenario_sha256(parse_scenario(same, "other.yaml")) == sha256
    other = changed("[1, 8]", "[1, 9]")
    assert scenario_sha256(parse_scenario(other, "s.yaml")) != sha256
    assert len(sha256) == 64


# More addresses to send from and to


def test_addresses_to_send_from_are_ip_addresses_listed_once() -> None:
    lists = [("[eth0]", "not an IP address"), ("[127.0.0.1, 127.0.0.1]", "listed twice")]
    for value, words in lists:
        problem = problem_of(SCENARIO + f"load: {{source_addresses: {value}}}\n")
        assert problem.path.startswith("load.source_addresses")
        assert words in str(problem)
    loaded = parse_scenario(SCENARIO + "load: {source_addresses: [127.0.0.2, 'fd00::1']}\n", "s.yaml")
    assert loaded.load.source_addresses == ["127.0.0.2", "fd00::1"]


@pytest.mark.parametrize(
    ("urls", "words"),
    [
        ('["http://host:30000"]', "the arm's `url` already"),
        ('["http://b:1", "http://b:1"]', "listed twice"),
        ('["https://b:1"]', "cannot be mixed"),
    ],
)
def test_further_addresses_of_an_engine_are_others_of_the_same_kind(urls: str, words: str) -> None:
    old = '{url: "http://host:30000"}'
    problem = problem_of(changed(old, f'{{url: "http://host:30000", load_urls: {urls}}}'))
    assert problem.path.startswith("arms.mine.load_urls")
    assert words in str(problem)


def test_a_simulated_engine_has_one_address() -> None:
    problem = problem_of(changed('{url: "http://host:30000"}', '{sim: {}, load_urls: ["http://b:1"]}'))
    assert problem.path == "arms.mine.load_urls"


def test_the_log_of_an_arm_is_an_absolute_path() -> None:
    url = 'url: "http://host:30000"'
    read = parse_scenario(changed(url, f"{url}, log: {{path: /var/log/engine.log}}"), "s.yaml")
    log = read.arms["mine"].log
    assert log is not None
    assert log.path == "/var/log/engine.log"
    problem = problem_of(changed(url, f"{url}, log: {{path: logs/engine.log}}"))
    assert (problem.path, problem.allowed) == ("arms.mine.log.path", "an absolute path on the target's host")


@pytest.mark.parametrize(
    ("arm", "message"),
    [
        ('engine: vllm, url: "http://host:30000"', "only SGLang's log tells cached tokens, not that of vllm"),
        ("sim: {}", "the simulated engine's log is known already: leave `log` out"),
    ],
)
def test_a_log_that_tells_nothing_or_is_known_is_refused(arm: str, message: str) -> None:
    problem = problem_of(changed('url: "http://host:30000"', f"{arm}, log: {{path: /engine.log}}"))
    assert (problem.path, problem.message) == ("arms.mine.log", message)
