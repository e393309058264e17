#!/usr/bin/env python3
"""Validity of tool calls, counted as Moonshot's K2 vendor verifier counts it.

  schema accuracy      of the answers that end with tool calls, the share whose every call names a
                       tool that was offered, with arguments that are JSON and fit its schema
  trigger similarity   F1 of "this answer calls a tool" against a reference: what each request is
                       known to need, or (--reference) what another server did with it

  evals/toolcalls.py --base-url http://127.0.0.1:30000 --requests evals/tool_requests.jsonl

A request is one line: {"id", "messages", "tools", "expects_call", ...}; other fields are sent as
they are. Beyond the verifier, "expected": [{"name", "arguments"}] is compared when a line has it.
"""

import argparse
import json
import os
import sys

import report
import server

HERE = os.path.dirname(os.path.abspath(__file__))
OURS = {"id", "expects_call", "expected"}


def read_requests(path):
    requests = []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            request = json.loads(line)
            missing = {"id", "messages", "tools", "expects_call"} - set(request)
            if missing:
                raise ValueError(f"{path}: line {number}: no {', '.join(sorted(missing))}")
            requests.append(request)
    if len({request["id"] for request in requests}) != len(requests):
        raise ValueError(f"{path}: an id is there twice")
    if not requests:
        raise ValueError(f"{path}: no requests")
    return requests


def call_fault(call, tools, validate):
    """What is wrong with one call, or None."""
    schemas = {tool["function"]["name"]: tool["function"].get("parameters") for tool in tools}
    function = call.get("function") or {}
    name = function.get("name")
    if name not in schemas:
        return f"no such tool: {name!r}"
    try:
        arguments = json.loads(function.get("arguments") or "")
    except ValueError as error:
        return f"{name}: arguments are not JSON: {error}"
    if not isinstance(arguments, dict):
        return f"{name}: arguments are no object"
    return validate(arguments, schemas[name] or {"type": "object"}, name)


def schema_validator():
    import jsonschema  # once: not everything here needs it

    def validate(arguments, schema, name):
        try:
            jsonschema.validate(arguments, schema)
            return None
        except jsonschema.ValidationError as error:
            return f"{name}: {error.message}"

    return validate


def judge(request, choice, validate):
    """What one answer counts as."""
    calls = choice["message"].get("tool_calls") or []
    triggered = choice["finish_reason"] == "tool_calls"
    faults = [fault for call in calls if (fault := call_fault(call, request["tools"], validate))]
    # An answer that says it called something, and did not, is no valid call either.
    if triggered and not calls:
        faults.append("finish_reason is tool_calls and there is none")
    out = {"id": request["id"], "triggered": triggered, "faults": faults}
    if "expected" in request:
        said = [call["function"] for call in calls] if not faults else []
        said = [{"name": f["name"], "arguments": json.loads(f["arguments"])} for f in said]
        out["as_expected"] = said == request["expected"]
    return out


def trigger_counts(results, reference):
    """(true positive, false positive, false negative, true negative) of calling a tool."""
    counts = {(said, wanted): 0 for said in (True, False) for wanted in (True, False)}
    for result in results:
        counts[result["triggered"], reference[result["id"]]] += 1
    return counts[True, True], counts[True, False], counts[False, True], counts[False, False]


def trigger_similarity(results, reference):
    tp, fp, fn, tn = trigger_counts(results, reference)
    precision = tp / (tp + fp) if tp + fp else 0.0
    recall = tp / (tp + fn) if tp + fn else 0.0
    f1 = 2 * precision * recall / (precision + recall) if tp else 0.0
    names = ("true_positive", "false_positive", "false_negative", "true_negative")
    counts = dict(zip(names, (tp, fp, fn, tn)))
    return {"f1": f1, "precision": precision, "recall": recall, **counts}


def reference_of(requests, path):
    """Whether each request is answered with a call: as its line says, or as a report says."""
    if path is None:
        return {request["id"]: bool(request["expects_call"]) for request in requests}
    with open(path, encoding="utf-8") as file:
        reference = {result["id"]: result["triggered"] for result in json.load(file)["results"]}
    missing = [request["id"] for request in requests if request["id"] not in reference]
    if missing:
        raise ValueError(f"{path}: no result of {missing[0]} ({len(missing)} missing)")
    return reference


def make_report(model, requests, results, reference):
    triggered = [result for result in results if result["triggered"]]
    tasks = []
    if triggered:
        valid = [(result["id"], not result["faults"]) for result in triggered]
        tasks.append(report.task_report("schema", valid))
    agreed = [(result["id"], result["triggered"] == reference[result["id"]]) for result in results]
    tasks.append(report.task_report("trigger", agreed))
    expected = [(r["id"], r["as_expected"]) for r in results if "as_expected" in r]
    if expected:
        tasks.append(report.task_report("expected", expected))
    return {
        "model": model,
        "eval": "toolcalls",
        "requests": len(requests),
        "tool_calls": len(triggered),
        "schema_accuracy": tasks[0]["accuracy"] if triggered else None,
        "trigger_similarity": trigger_similarity(results, reference),
        "tasks": tasks,
        "results": results,
    }


def run(args):
    requests = read_requests(args.requests)[: args.limit]
    reference = reference_of(requests, args.reference)
    validate = schema_validator()
    target = server.server_of(args)
    extra = {"chat_template_kwargs": args.chat_template_kwargs} if args.chat_template_kwargs else {}

    def ask(request):
        fields = {key: value for key, value in request.items() if key not in OURS}
        fields = {"temperature": 0, "max_tokens": args.max_tokens, **extra, **fields}
        return judge(request, target.chat(**fields), validate)

    results = server.each(ask, requests, args.concurrency, "toolcalls")
    return make_report(target.model, requests, results, reference)


def parse(argv):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    server.add_server_flags(parser)
    report.add_report_flags(parser)
    parser.add_argument("--requests", default=f"{HERE}/tool_requests.jsonl")
    parser.add_argument("--reference", help="a report of another server: it says who calls")
    parser.add_argument("--limit", type=int, help="the first so many requests")
    parser.add_argument("--max-tokens", type=int, default=2048)
    parser.add_argument("--chat-template-kwargs", type=json.loads, help="JSON, sent as it is")
    return parser.parse_args(argv)


def main(argv=None):
    args = parse(argv)
    try:
        found = run(args)
    except (server.ServerError, OSError, ValueError, ImportError) as error:
        return report.fail(error)
    if not args.json:
        similarity = found["trigger_similarity"]
        schema = found["schema_accuracy"]
        schema = "no calls" if schema is None else f"{100 * schema:.2f} %"
        print(f"schema accuracy {schema}, trigger similarity {similarity['f1']:.4f}")
        for result in found["results"]:
            for fault in result["faults"]:
                print(f"  {result['id']}: {fault}", file=sys.stderr)
    return report.finish(found, args)


if __name__ == "__main__":
    sys.exit(main())
