"""What quire compress writes, read by transformers with compressed-tensors: the same greedy tokens
as the engine's, wherever the margin is more than what rounding to BF16 moves a logit by
(docs/numerics.md). Skipped where torch, transformers or compressed-tensors are absent:
`pip install torch transformers compressed-tensors`."""

import json
import pathlib
import subprocess

import numpy as np
import pytest
from test_compress import succeed

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("compressed_tensors", reason="compressed-tensors is not installed")

N_PROMPTS = 100
N_TOKENS = 6
TASKS = ("arithmetic", "choice", "count", "people", "sort")


def prompts(model_path):
    """The shortest of the committed items, as many of each task."""
    out = []
    for task in TASKS:
        lines = pathlib.Path(model_path, "eval", task + ".jsonl").read_text().splitlines()
        ids = [json.loads(line)["turns"][0]["prompt_ids"] for line in lines]
        out += sorted(ids, key=len)[: N_PROMPTS // len(TASKS)]
    return out


def engine_logits(binary, folder, sequences):
    """[sequences, vocabulary] after the last id of each."""
    lines = "".join(json.dumps({"ids": ids}) + "\n" for ids in sequences)
    command = [binary, "logits", "--model-path", str(folder)]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return np.array([json.loads(line)["logits"] for line in done.stdout.splitlines()])


def rounding(n_layers):
    """What BF16 takes from the logits' norm, as tests/golden has it: 24 roundings a layer."""
    return np.sqrt(24 * n_layers) * 2.0**-9 / np.sqrt(3)


def tolerance(logits, n_layers):
    """Of a single logit."""
    return 6 * 2 * rounding(n_layers) * logits.std()


@torch.no_grad()
def continue_greedily(model, ids):
    """(tokens, logits [tokens, vocabulary]), in float32."""
    ids, tokens, rows = list(ids), [], []
    for _ in range(N_TOKENS):
        row = model(torch.tensor([ids])).logits[0, -1].double().numpy()
        tokens.append(int(row.argmax()))
        rows.append(row)
        ids.append(tokens[-1])
    return tokens, np.array(rows)


@pytest.mark.parametrize("group", [32, 128])
def test_greedy_tokens_are_the_engines(binary, model_path, tmp_path, group):
    out = tmp_path / "out"
    succeed(binary, model_path, out, "--format", "int4", "--group-size", str(group))
    model = transformers.AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32)
    n_layers = model.config.num_hidden_layers
    sequences, theirs, greedy = [], [], []
    for ids in prompts(model_path):
        tokens, rows = continue_greedily(model.eval(), ids)
        sequences += [ids + tokens[:i] for i in range(N_TOKENS)]
        theirs.append(rows)
        greedy += tokens
    theirs = np.concatenate(theirs)
    ours = engine_logits(binary, out, sequences)
    assert len(ours) == N_PROMPTS * N_TOKENS
    n_compared = 0
    for row, other, token in zip(ours, theirs, greedy, strict=True):
        second, first = np.sort(other)[-2:]
        if first - second <= 2 * tolerance(other, n_layers):  # both may be off
            continue
        assert row.argmax() == token
        n_compared += 1
    off = np.linalg.norm(ours - theirs, axis=1) / np.linalg.norm(theirs, axis=1)
    print(f"{n_compared} of {len(ours)} greedy tokens compared, logits off by {np.median(off):.4f}")
    assert n_compared > 0.9 * len(ours)
    # Not the worst: where two experts are all but tied, rounding may choose the other.
    assert np.median(off) <= 2 * rounding(n_layers)
