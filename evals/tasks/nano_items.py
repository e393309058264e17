"""The item sets of models/kimi-nano as chats: what a user says, and what the answer must be.

The files hold token ids; this reads them back into text with the model's own tables, so that any
server can be asked through its chat endpoint. Used by evals/tasks/*.yaml.
"""

import base64
import json
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "models" / "kimi-nano"
USER_TURN = re.compile(r"<\|im_user\|>user<\|im_middle\|>(.*?)<\|im_end\|>", re.DOTALL)


def load_table(model=MODEL):
    """Bytes by id: ranks, then special tokens by name."""
    table = {}
    for line in (model / "tiktoken.model").read_bytes().splitlines():
        encoded, rank = line.split()
        table[int(rank)] = base64.b64decode(encoded)
    config = json.loads((model / "tokenizer_config.json").read_text(encoding="utf-8"))
    for token, entry in config["added_tokens_decoder"].items():
        table[int(token)] = entry["content"].encode()
    return table


def decode(table, ids):
    return b"".join(table[token] for token in ids).decode("utf-8", "replace")


def read_docs(task, data_dir=None):
    """{"id", "question", "answer", "prompt"} of every item of a task of one turn."""
    table = load_table()
    path = pathlib.Path(data_dir or MODEL / "eval") / f"{task}.jsonl"
    docs = []
    for line in path.read_text(encoding="utf-8").splitlines():
        item = json.loads(line)
        prompt = decode(table, item["turns"][0]["prompt_ids"])
        docs.append(
            {
                "id": item["id"],
                "question": USER_TURN.findall(prompt)[-1],
                "answer": decode(table, item["turns"][0]["expected_ids"]),
                # Without thoughts: the answer is what follows at once.
                "prompt": prompt.removesuffix("<think>").removesuffix("<think></think>")
                + "<think></think>",
            }
        )
    return docs


def dataset(metadata=None, **fields):
    """What lm-evaluation-harness takes as a task's `custom_dataset`."""
    import datasets

    return {"test": datasets.Dataset.from_list(read_docs(fields["nano_task"], fields.get("data")))}
