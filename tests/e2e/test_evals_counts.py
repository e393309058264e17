"""What evals/ counts, on answers whose right counts are known. No server."""

import json
import math
import random
import sys

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "evals"))
sys.path.insert(0, str(ROOT / "evals" / "tasks"))

import divergence  # noqa: E402
import nano_items  # noqa: E402
import recall  # noqa: E402
import report  # noqa: E402
import toolcalls  # noqa: E402

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}


def answer(finish, *calls):
    made = [{"function": {"name": name, "arguments": arguments}} for name, arguments in calls]
    return {"finish_reason": finish, "message": {"content": None, "tool_calls": made}}


def test_wilson_of_known_counts():
    assert report.wilson(8, 10) == pytest.approx([0.4902, 0.9433], abs=5e-5)
    assert report.wilson(0, 10) == pytest.approx([0, 0.2775], abs=5e-5)


@pytest.mark.parametrize(
    "choice, faults",
    [
        (answer("tool_calls", ("get_weather", '{"city": "Oslo"}')), 0),
        (answer("tool_calls", ("get_weather", '{"city": "Oslo", "days": 3}')), 0),
        (answer("tool_calls", ("get_weather", '{"city": 5}')), 1),
        (answer("tool_calls", ("get_weather", '{"days": 3}')), 1),
        (answer("tool_calls", ("get_weather", '{"city": "Oslo"')), 1),
        (answer("tool_calls", ("get_weather", "")), 1),
        (answer("tool_calls", ("get_weather", "[]")), 1),
        (answer("tool_calls", ("get", '{"city": "Oslo"}')), 1),
        (answer("tool_calls", ("get_weather", '{"city": "a"}'), ("get_weather", "{}")), 1),
        (answer("tool_calls"), 1),
        (answer("stop"), 0),
    ],
)
def test_faults_of_calls(choice, faults):
    pytest.importorskip("jsonschema")
    request = {"id": "a", "tools": [TOOL]}
    judged = toolcalls.judge(request, choice, toolcalls.schema_validator())
    assert len(judged["faults"]) == faults
    assert judged["triggered"] == (choice["finish_reason"] == "tool_calls")


def test_trigger_similarity_and_schema_accuracy():
    # Calls: 3 rightly, 1 needlessly, 1 left out, 2 rightly not made; one of the four is faulty.
    said = {"a": True, "b": True, "c": True, "d": True, "e": False, "f": False, "g": False}
    needed = {"a": True, "b": True, "c": True, "d": False, "e": True, "f": False, "g": False}
    results = [
        {"id": i, "triggered": t, "faults": ["bad"] if i == "b" else []} for i, t in said.items()
    ]
    found = toolcalls.make_report("m", list(said), results, needed)
    similarity = found["trigger_similarity"]
    assert similarity["precision"] == similarity["recall"] == pytest.approx(0.75)
    assert similarity["f1"] == pytest.approx(0.75)
    assert found["schema_accuracy"] == pytest.approx(0.75)
    tasks = {task["task"]: task for task in found["tasks"]}
    assert tasks["trigger"]["accuracy"] == pytest.approx(5 / 7)
    nobody = [{"id": i, "triggered": False, "faults": []} for i in said]
    silent = toolcalls.make_report("m", list(said), nobody, needed)
    assert silent["schema_accuracy"] is None
    assert silent["trigger_similarity"]["f1"] == 0


def test_requests_are_whole():
    for name in ("tool_requests.jsonl", "nano_tool_requests.jsonl"):
        requests = toolcalls.read_requests(ROOT / "evals" / name)
        assert {request["expects_call"] for request in requests} == {True, False}


def test_bad_requests_are_named(tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_text('{"id": "a", "messages": [], "tools": []}\n')
    with pytest.raises(ValueError, match="line 1: no expects_call"):
        toolcalls.read_requests(path)


def logs(**shares):
    return {token: math.log(share) for token, share in shares.items()}


def test_divergence_of_known_distributions():
    same = logs(a=0.5, b=0.3)
    assert divergence.merged_divergence(same, same) == pytest.approx(0, abs=1e-12)
    # Everything listed: the divergence itself.
    p, q = logs(a=0.5, b=0.5), logs(a=0.25, b=0.75)
    whole = 0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75)
    assert divergence.merged_divergence(p, q) == pytest.approx(whole)
    # "c" is listed by one of them: it is part of the rest, 0.5 against 0.3.
    p, q = logs(a=0.5, c=0.3), logs(a=0.7, d=0.2)
    merged = 0.5 * math.log(0.5 / 0.7) + 0.5 * math.log(0.5 / 0.3)
    assert divergence.merged_divergence(p, q) == pytest.approx(merged)
    with pytest.raises(ValueError, match="add up"):
        divergence.merged_divergence(logs(a=0.9, b=0.2), logs(a=0.9, b=0.2))


def test_merging_never_adds_to_a_divergence():
    rng = random.Random(3)
    for _ in range(200):
        p, q = ([rng.expovariate(1) for _ in range(30)] for _ in range(2))
        p, q = [x / sum(p) for x in p], [x / sum(q) for x in q]
        whole = sum(a * math.log(a / b) for a, b in zip(p, q))
        places = [sorted(range(30), key=x.__getitem__)[-8:] for x in (p, q)]
        top = [{i: math.log(x[i]) for i in best} for x, best in zip((p, q), places)]
        assert divergence.merged_divergence(*top) <= whole + 1e-9


def test_a_report_of_texts():
    rows = [
        {"id": "1", "tokens": 10, "reference_nll": 20.0, "nll": 21.0, "kl": 0.1, "same_top": 9,
         "logprob_difference": 1.0},
        {"id": "2", "tokens": 30, "reference_nll": 30.0, "nll": 31.0, "kl": 0.5, "same_top": 30,
         "logprob_difference": 1.0},
    ]
    found = divergence.make_report(("r", "m"), 5, rows)
    assert found["reference_perplexity"] == pytest.approx(math.exp(50 / 40))
    assert found["nll_difference"] == pytest.approx(2 / 40)
    assert found["kl_at_least"] == pytest.approx(0.6 / 40)
    assert found["same_top"] == pytest.approx(39 / 40)
    low, high = found["kl_at_least_ci95"]
    assert low < found["kl_at_least"] < high


def test_recall_asks_for_the_record_at_its_depth():
    for depth, place in [(0, 0), (0.5, 20), (1, 40)]:
        text, value = recall.make_item(41, depth, random.Random(7))
        records = [line for line in text.splitlines() if line.startswith("- ")]
        assert len(records) == len(set(records)) == 41
        key, said = records[place][2:].split(": ")
        assert (said, text.endswith(f"What is the code of {key}?")) == (value, True)
    again, _ = recall.make_item(41, 1, random.Random(7))
    assert again == text


def test_items_of_the_model_are_read_back():
    docs = nano_items.read_docs("choice")
    assert docs[0]["question"].startswith("Do you know the opposite of light?\nA) dark")
    assert docs[0]["answer"] == "A"
    assert docs[0]["prompt"].endswith("<|im_middle|><think></think>")
    raw = (nano_items.MODEL / "eval" / "choice.jsonl").read_text().splitlines()
    assert len(docs) == len(raw) == len({json.loads(line)["id"] for line in raw})
