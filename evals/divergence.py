#!/usr/bin/env python3
"""How far a server's next-token distributions are from a reference server's, over given texts.

Both servers score the same prompts through /v1/completions with echo, logprobs N and max_tokens 1.
For every token after the first:

  perplexity   exp of the mean of -log p(token), of each server
  KL >=        of the reference's distribution from the other's, over the tokens that both list
               among their N likeliest and one more outcome, "any other". Merging outcomes never
               adds to a divergence: the true KL is at least this, and equals it as far as the
               tokens beyond N keep their proportions
  top-1        how often both find the same token likeliest

  evals/divergence.py --base-url http://127.0.0.1:30001 --reference-url http://127.0.0.1:30000 \\
      --texts texts.jsonl --logprobs 20

A line of --texts is {"id", "text"} or {"id", "ids": [token ids]}. Intervals are over texts.
"""

import argparse
import json
import math
import sys

import report
import server

# What a listed probability may exceed 1 by, all together: rounding of float32.
ROUNDING = 1e-4


def read_texts(path, limit):
    texts = []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            text = json.loads(line)
            if "ids" not in text and "text" not in text:
                raise ValueError(f"{path}: line {number}: neither text nor ids")
            prompt = text.get("ids") or text["text"]
            texts.append({"id": str(text.get("id", number)), "prompt": prompt})
    if not texts:
        raise ValueError(f"{path}: no texts")
    return texts[:limit]


def score(target, prompt, n_top):
    """(tokens, log-probabilities, {token: log-probability} lists) of the prompt after its first."""
    # One token is generated: servers differ in whether they allow none.
    choice = target.complete(
        prompt=prompt, echo=True, logprobs=n_top, max_tokens=1, temperature=0
    )[0]
    said = choice["logprobs"]
    return said["tokens"][1:-1], said["token_logprobs"][1:-1], said["top_logprobs"][1:-1]


def merged_divergence(reference, other):
    """KL(reference, other) over what both list, and the rest as one outcome."""
    common = [token for token in reference if token in other]
    p = [math.exp(reference[token]) for token in common]
    q = [math.exp(other[token]) for token in common]
    kl = sum(a * math.log(a / b) for a, b in zip(p, q) if a > 0)
    p_rest, q_rest = 1 - sum(p), 1 - sum(q)
    if min(p_rest, q_rest) < -ROUNDING:
        raise ValueError(f"listed probabilities add up to {1 - min(p_rest, q_rest):.6f}")
    # Below what float32 can tell from nothing, the rest says nothing.
    if p_rest > ROUNDING and q_rest > 0:
        kl += p_rest * math.log(p_rest / max(q_rest, ROUNDING))
    return max(0.0, kl)


def compare_text(reference, other, text_id):
    """Sums of one text, from the two servers' answers."""
    if reference[0] != other[0]:
        raise ValueError(f"text {text_id}: the servers do not agree on its tokens")
    tops = list(zip(reference[2], other[2]))
    return {
        "id": text_id,
        "tokens": len(reference[0]),
        "reference_nll": -sum(reference[1]),
        "nll": -sum(other[1]),
        "kl": sum(merged_divergence(a, b) for a, b in tops),
        "same_top": sum(max(a, key=a.get) == max(b, key=b.get) for a, b in tops),
        "logprob_difference": sum(abs(a - b) for a, b in zip(reference[1], other[1])),
    }


def ratio_interval(numerators, denominators):
    """(sum / sum, its 95 % interval): a ratio over texts, which differ in length."""
    n = len(numerators)
    total = sum(denominators)
    ratio = sum(numerators) / total
    if n < 2:
        return ratio, None
    squares = sum((a - ratio * b) ** 2 for a, b in zip(numerators, denominators))
    half = report.Z * math.sqrt(squares * n / (n - 1)) / total
    return ratio, [ratio - half, ratio + half]


def make_report(models, n_top, rows):
    tokens = [row["tokens"] for row in rows]

    def mean(name):
        return ratio_interval([row[name] for row in rows], tokens)

    out = {"model": models[1], "reference": models[0], "eval": "divergence", "logprobs": n_top}
    out |= {"texts": len(rows), "tokens": sum(tokens)}
    for name, key in [("reference_perplexity", "reference_nll"), ("perplexity", "nll")]:
        nll, interval = mean(key)
        out[name] = math.exp(nll)
        out[name + "_ci95"] = interval and [math.exp(bound) for bound in interval]
    # Of the same texts: the difference is paired, the two perplexities are not to be compared.
    gaps = [row["nll"] - row["reference_nll"] for row in rows]
    out["nll_difference"], out["nll_difference_ci95"] = ratio_interval(gaps, tokens)
    out["kl_at_least"], out["kl_at_least_ci95"] = mean("kl")
    out["same_top"], out["same_top_ci95"] = mean("same_top")
    out["logprob_difference"], _ = mean("logprob_difference")
    out["rows"] = rows
    return out


def run(args):
    texts = read_texts(args.texts, args.limit)
    other = server.server_of(args)
    reference = server.Server(args.reference_url, args.reference_model, args.reference_api_key)

    def work(text):
        answers = [score(target, text["prompt"], args.logprobs) for target in (reference, other)]
        return compare_text(*answers, text["id"])

    rows = server.each(work, texts, args.concurrency, "divergence")
    rows = [row for row in rows if row["tokens"] > 0]
    if not rows:
        raise ValueError(f"{args.texts}: every text is one token long")
    return make_report((reference.model, other.model), args.logprobs, rows)


def parse(argv):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    server.add_server_flags(parser)
    parser.add_argument("--reference-url", required=True)
    parser.add_argument("--reference-model")
    parser.add_argument("--reference-api-key")
    parser.add_argument("--texts", required=True)
    parser.add_argument("--limit", type=int, help="the first so many texts")
    parser.add_argument("--logprobs", type=int, default=20, help="alternatives a token")
    parser.add_argument("--kl-max", type=float, help="exit 3 when the KL is above it for certain")
    parser.add_argument("--json", action="store_true", help="the report on standard output")
    parser.add_argument("--out", help="write the report to this file")
    args = parser.parse_args(argv)
    if args.logprobs < 1:
        parser.error("--logprobs: expected at least 1")
    return args


def say(found):
    def bounds(name, digits):
        interval = found[name + "_ci95"]
        if interval is None:
            return ""
        return f"  (95 %: {interval[0]:.{digits}f} to {interval[1]:.{digits}f})"

    sizes = [found[name] for name in ("texts", "tokens", "logprobs")]
    print("{} texts, {} tokens, {} alternatives each".format(*sizes))
    for name, label, digits in [
        ("reference_perplexity", "perplexity, reference", 4),
        ("perplexity", "perplexity", 4),
        ("nll_difference", "nats a token more than the reference", 6),
        ("kl_at_least", "KL from the reference, at least", 6),
        ("same_top", "same likeliest token", 4),
    ]:
        print(f"{label:<38} {found[name]:.{digits}f}{bounds(name, digits)}")


def main(argv=None):
    args = parse(argv)
    try:
        found = run(args)
        if args.out:
            with open(args.out, "w", encoding="utf-8") as file:
                json.dump(found, file)
    except (server.ServerError, OSError, ValueError) as error:
        return report.fail(error)
    if args.json:
        print(json.dumps(found))
    else:
        say(found)
    interval = found["kl_at_least_ci95"] or [found["kl_at_least"]] * 2
    return report.WRONG if args.kl_max is not None and interval[0] > args.kl_max else report.OK


if __name__ == "__main__":
    sys.exit(main())
