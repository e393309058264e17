#!/usr/bin/env python3
"""lm-evaluation-harness against any OpenAI-compatible server.

Standard tasks by their names (gsm8k, arc_easy, arc_challenge, mmlu, mmlu_pro: the harness fetches
their data), and those of evals/tasks for models/kimi-nano: the tags kimi_nano (chat) and
kimi_nano_likelihood (completions).

  evals/harness.py --base-url http://127.0.0.1:30000 --api chat --tasks kimi_nano --limit 50
  evals/harness.py --base-url http://127.0.0.1:30000 --api completions --tasks arc_challenge

Tasks that compare likelihoods need --api completions and a server whose /v1/completions takes
echo with logprobs. Its tokens are then counted by the server's own /tokenize; for a server that has
none, --tokenizer names a tokenizer of the Hugging Face hub.
"""

import argparse
import functools
import pathlib
import re
import sys

import report
import server

TASKS = pathlib.Path(__file__).resolve().parent / "tasks"
# Special tokens as texts write them: a server's tokenizer may take markup for plain text.
MARKUP = re.compile(r"(<\|[a-z_]+\|>|</?think>|\[(?:BOS|EOS)\])")
# What an item's result is called, in order of preference.
METRICS = ("exact_match", "acc")


def markup_tokenizer(url, api_key):
    """The server's tokenizer; special tokens of a text are themselves."""
    from lm_eval.utils import RemoteTokenizer

    class MarkupTokenizer(RemoteTokenizer):
        @functools.lru_cache(maxsize=65536)
        def encode_piece(self, piece):
            return tuple(super().encode(piece))

        def encode(self, text):
            pieces = [piece for piece in MARKUP.split(text) if piece]
            return [token for piece in pieces for token in self.encode_piece(piece)]

    return MarkupTokenizer(url, auth_token=api_key)


def make_model(target, args):
    from lm_eval.models.openai_completions import LocalChatCompletion, LocalCompletionsAPI

    header = {"Authorization": f"Bearer {target.api_key}"} if target.api_key else None
    fields = {
        "model": target.model,
        "num_concurrent": args.concurrency,
        "max_length": args.max_length,
        "max_gen_toks": args.max_gen_toks,
        "timeout": 600,
        "header": header,
        "auth_token": target.api_key,
    }
    if args.api == "chat":
        url = target.root + "/v1/chat/completions"
        return LocalChatCompletion(base_url=url, **fields)
    url = target.root + "/v1/completions"
    if args.tokenizer != "server":
        fields |= {"tokenizer": args.tokenizer, "tokenizer_backend": "huggingface"}
        return LocalCompletionsAPI(base_url=url, **fields)
    model = LocalCompletionsAPI(base_url=url, tokenizer_backend="remote", **fields)
    model.tokenizer = markup_tokenizer(target.root, target.api_key)
    return model


def item_of(sample):
    """(id, right) of one sample of the harness."""
    metric = next((name for name in METRICS if name in sample), None)
    if metric is None:
        raise ValueError(f"no metric of {', '.join(METRICS)} among {sorted(sample)}")
    doc = sample["doc"]
    return str(doc.get("id", sample["doc_id"])), sample[metric] == 1


def make_tasks(samples):
    """One task of the report for each task and filter of the harness."""
    tasks = []
    for task, found in samples.items():
        by_filter = {}
        for sample in found:
            by_filter.setdefault(sample.get("filter", "none"), []).append(item_of(sample))
        for name, items in by_filter.items():
            label = task if name == "none" else f"{task}:{name}"
            tasks.append(report.task_report(label, items))
    return sorted(tasks, key=lambda task: task["task"])


def run(args):
    import lm_eval
    from lm_eval.tasks import TaskManager

    target = server.server_of(args)
    results = lm_eval.simple_evaluate(
        model=make_model(target, args),
        tasks=args.tasks.split(","),
        num_fewshot=args.num_fewshot,
        limit=args.limit,
        task_manager=TaskManager(include_path=str(TASKS)),
        apply_chat_template=args.api == "chat",
        log_samples=True,
        bootstrap_iters=0,
    )
    return {
        "model": target.model,
        "eval": "harness",
        "api": args.api,
        "lm_eval": lm_eval.__version__,
        "tasks": make_tasks(results["samples"]),
    }


def parse(argv):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    server.add_server_flags(parser)
    report.add_report_flags(parser)
    parser.add_argument("--tasks", required=True, help="names or tags, by commas")
    parser.add_argument("--api", choices=["chat", "completions"], default="chat")
    parser.add_argument("--tokenizer", default="server", help="'server', or a name of the hub")
    parser.add_argument("--limit", type=int, help="the first so many items of each task")
    parser.add_argument("--num-fewshot", type=int, help="default: the task's own")
    parser.add_argument("--max-length", type=int, default=4096, help="the model's context")
    parser.add_argument("--max-gen-toks", type=int, default=2048)
    return parser.parse_args(argv)


def main(argv=None):
    args = parse(argv)
    try:
        return report.finish(run(args), args)
    except ImportError as error:
        return report.fail(f"{error}: make evals-setup installs what the harness needs")
    except Exception as error:  # the harness raises many kinds; each ends a run
        return report.fail(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    sys.exit(main())
