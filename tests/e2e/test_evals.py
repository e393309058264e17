"""evals/ against a running server: each eval's command, its report and its exit code."""

import json
import subprocess
import sys

import pytest
from conftest import ROOT

EVALS = ROOT / "evals"
NO_THOUGHTS = '{"thinking": false}'


def run(name, *flags, code=0):
    """The report of an eval that must end with `code`."""
    done = subprocess.run(
        [sys.executable, EVALS / f"{name}.py", *flags, "--json"], capture_output=True, text=True
    )
    assert done.returncode == code, done.stderr[-2000:]
    return json.loads(done.stdout) if code != 1 else done.stderr


def task_of(report, name):
    return next(task for task in report["tasks"] if task["task"] == name)


def test_recall_by_depth(server, tmp_path):
    flags = ["--base-url", server.url, "--lines", "30", "--depths", "3", "--per-depth", "4"]
    flags += ["--chat-template-kwargs", NO_THOUGHTS]
    report = run("recall", *flags, "--out", str(tmp_path / "a.json"))
    assert [task["task"] for task in report["tasks"]] == ["recall@0%", "recall@50%", "recall@100%"]
    assert sum(task["accuracy"] for task in report["tasks"]) >= 3 * 0.75
    assert json.loads((tmp_path / "a.json").read_text()) == report


def test_two_runs_are_compared(server, tmp_path, binary):
    paths = []
    for seed in ("1", "1", "2"):
        paths.append(str(tmp_path / f"{len(paths)}.json"))
        run(
            *("recall", "--base-url", server.url, "--lines", "20", "--depths", "2"),
            *("--per-depth", "3", "--chat-template-kwargs", NO_THOUGHTS, "--out", paths[-1]),
        )
    compare = [binary, "eval", "compare", *paths[:2], "--json"]
    done = subprocess.run(compare, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    tasks = json.loads(done.stdout)["tasks"]
    assert [task["task"] for task in tasks] == ["recall@0%", "recall@100%", "all"]
    # The same items and the same greedy answers.
    assert all((task["lost"], task["won"], task["finding"]) == (0, 0, "none") for task in tasks)
    # Six pairs without a difference do not show that no item in a hundred is lost.
    strict = subprocess.run([*compare, "--margin", "0.01"], capture_output=True)
    assert strict.returncode == 3
    missing = subprocess.run([binary, "eval", "compare", paths[0], "nowhere"], capture_output=True)
    assert missing.returncode == 1


def test_tool_calls(server):
    pytest.importorskip("jsonschema")
    report = run(
        *("toolcalls", "--base-url", server.url, "--limit", "24"),
        *("--requests", str(EVALS / "nano_tool_requests.jsonl")),
        *("--chat-template-kwargs", NO_THOUGHTS),
    )
    assert report["requests"] == 24
    assert report["tool_calls"] > 10
    assert report["schema_accuracy"] >= 0.9
    assert report["trigger_similarity"]["recall"] >= 0.9
    assert task_of(report, "expected")["accuracy"] >= 0.8
    # What fails must fail.
    low = run(
        *("toolcalls", "--base-url", server.url, "--limit", "8", "--max-tokens", "4"),
        *("--bar", "0.9"),
        *("--requests", str(EVALS / "nano_tool_requests.jsonl")),
        code=3,
    )
    assert low["trigger_similarity"]["recall"] < 0.5


@pytest.fixture(scope="module")
def texts(tmp_path_factory, model_path):
    """Prompts of every task, as ids."""
    path = tmp_path_factory.mktemp("texts") / "texts.jsonl"
    golden = ROOT / "models" / "kimi-nano" / "eval" / "golden_prompts.jsonl"
    with open(path, "w", encoding="utf-8") as file:
        for line in golden.read_text().splitlines():
            item = json.loads(line)
            file.write(json.dumps({"id": item["task"], "ids": item["ids"]}) + "\n")
    return str(path)


def test_divergence_from_itself_and_from_a_coarser_cache(server, start, texts):
    flags = ["--base-url", server.url, "--reference-url", server.url, "--texts", texts]
    itself = run("divergence", *flags)
    assert itself["texts"] == 8
    assert itself["kl_at_least"] < 1e-6
    assert itself["nll_difference"] == pytest.approx(0, abs=1e-6)
    assert itself["same_top"] == 1
    with start("--kv-cache-dtype", "fp8_e4m3") as coarse:
        flags = ["--base-url", coarse.url, "--reference-url", server.url, "--texts", texts]
        other = run("divergence", *flags)
        run("divergence", *flags, "--kl-max", "0", code=3)
    assert itself["kl_at_least"] < other["kl_at_least"] < 0.1
    assert 0.9 < other["same_top"] < 1
    assert other["perplexity"] == pytest.approx(itself["perplexity"], rel=0.05)


def test_what_cannot_work_says_why(server, tmp_path):
    nowhere = run("recall", "--base-url", "http://127.0.0.1:9", code=1)
    assert "127.0.0.1:9" in nowhere
    unknown = run("recall", "--base-url", server.url, "--model", "another", code=1)
    assert "model_not_found" in unknown
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    flags = ["--base-url", server.url, "--reference-url", server.url, "--texts", str(empty)]
    assert "no texts" in run("divergence", *flags, code=1)


def test_the_harness_asks_chats(server):
    pytest.importorskip("lm_eval")
    report = run(
        *("harness", "--base-url", server.url, "--api", "chat", "--limit", "12"),
        *("--tasks", "kimi_nano_sort,kimi_nano_arithmetic"),
    )
    assert [task["n"] for task in report["tasks"]] == [12, 12]
    assert all(task["accuracy"] >= 0.9 for task in report["tasks"])
    assert report["tasks"][0]["items"][0]["id"] == "arithmetic-0000"


def test_the_harness_compares_likelihoods(server):
    pytest.importorskip("lm_eval")
    report = run(
        *("harness", "--base-url", server.url, "--api", "completions", "--limit", "40"),
        *("--tasks", "kimi_nano_choice_likelihood"),
    )
    # A guess is right one time in five.
    assert task_of(report, "kimi_nano_choice_likelihood")["ci95"][0] > 0.5
