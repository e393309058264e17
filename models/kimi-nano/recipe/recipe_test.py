"""Checks of the recipe that need no torch: python3 -m unittest discover -s recipe -p '*_test.py'."""

import json
import os
import random
import sys
import tempfile
import unittest

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
MODEL = os.path.dirname(HERE)
SHARED = f"{MODEL}/../../../shared/data"
sys.path.insert(0, HERE)

import chat  # noqa: E402
import data  # noqa: E402
import heldout  # noqa: E402
import quantize  # noqa: E402
import tasks  # noqa: E402
import tokenizer  # noqa: E402

TOKENIZER = tokenizer.Tokenizer(f"{MODEL}/tiktoken.model")


def read_lines(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


class TokenizerTest(unittest.TestCase):
    def test_ranks_are_complete_and_digits_stay_single(self):
        self.assertEqual(sorted(TOKENIZER.bytes_of), list(range(tokenizer.N_RANKS)))
        self.assertTrue(all(bytes([b]) in TOKENIZER.ranks for b in range(256)))
        digits = set(b"0123456789")
        merged = [t for t in TOKENIZER.ranks if len(t) > 1 and digits & set(t)]
        self.assertEqual(merged, [])

    def test_text_comes_back_and_never_becomes_special(self):
        for text in ["Hello 123!\n\n  x", "caf\u00e9 \u4f60\u597d", "<|im_end|><think>"]:
            ids = TOKENIZER.encode(text)
            self.assertLess(max(ids), tokenizer.N_RANKS)
            self.assertEqual(TOKENIZER.decode(ids), text)

    def test_published_token_lists(self):
        ranks_path = f"{SHARED}/hf/moonshotai--Kimi-K2.6/tiktoken.model"
        if not os.path.exists(ranks_path):
            self.skipTest("the published ranks are not here")
        ranks, split = tokenizer.load_ranks(ranks_path), tokenizer.compile_split()
        for line in read_lines(f"{SHARED}/kimi/tokens.jsonl"):
            pieces = split.findall(line["text"])
            ids = [i for p in pieces for i in tokenizer.merge_lowest_rank(p.encode(), ranks)]
            self.assertEqual(ids, line["ids"], line["text"][:80])


class ChatTest(unittest.TestCase):
    def test_published_declarations(self):
        path = f"{SHARED}/kimi/tool_declarations.jsonl"
        if not os.path.exists(path):
            self.skipTest("the published declarations are not here")
        for line in read_lines(path):
            self.assertEqual(chat.declare_tools(line["tools"]), line["declaration"], line["case"])


class HeldOutTest(unittest.TestCase):
    def test_committed_items_are_what_the_seed_gives(self):
        for task in tasks.TASKS:
            committed = read_lines(f"{MODEL}/eval/{task}.jsonl")[:5]
            made = heldout.make_records(task, 5, 11, TOKENIZER)
            for record in committed:
                record.pop("prompt_text", None)
            self.assertEqual(committed, made, task)

    def test_prompts_fit_and_answers_end_before_the_stop(self):
        for task in tasks.TASKS:
            for record in read_lines(f"{MODEL}/eval/{task}.jsonl"):
                total = 0
                for turn in record["turns"]:
                    self.assertNotIn(chat.IM_END, turn["expected_ids"])
                    self.assertGreater(turn["max_new_tokens"], len(turn["expected_ids"]))
                    total += len(turn["prompt_ids"]) + turn["max_new_tokens"]
                self.assertLessEqual(total, 4096, record["id"])

    def test_training_never_draws_a_held_out_key(self):
        rng = random.Random(1)
        context = tasks.Context(TOKENIZER, False, tasks.SECOND_STAGE)
        for task in ("arithmetic", "tools", "sort", "copy", "count"):
            for _ in range(200):
                self.assertFalse(tasks.is_held_out(tasks.draw(task, rng, context).split_key))

    def test_memoised_records_are_the_right_ids(self):
        rng = random.Random(2)
        context = tasks.Context(TOKENIZER, False, tasks.SECOND_STAGE, 200, 900)
        for _ in range(20):
            ids = tasks.draw("recall", rng, context).turns[0].user_ids
            self.assertEqual(TOKENIZER.encode(TOKENIZER.decode(ids)), ids)

    def test_judging_looks_after_the_thoughts(self):
        self.assertTrue(heldout.is_right([5, chat.END_THINK, 7, chat.IM_END], [7]))
        self.assertTrue(heldout.is_right([7], [7]))
        self.assertFalse(heldout.is_right([7, 8, chat.IM_END], [7]))


class QuantizeTest(unittest.TestCase):
    def test_packed_nibbles_come_back(self):
        rng = np.random.default_rng(3)
        values = rng.integers(-8, 8, (4, 64)).astype(np.int32)
        words = quantize.pack_int4(values)
        nibbles = (words[..., None] >> (4 * np.arange(8, dtype=np.uint32))) & 15
        self.assertTrue((nibbles.reshape(4, 64).astype(np.int32) - 8 == values).all())

    def test_e4m3_rounds_to_nearest_even_and_saturates(self):
        cases = {0.0: 0, 448.0: 126, 1000.0: 126, 1.0625: 56, 1.1875: 58, 2.0**-10: 0, -1.0: 0xB8}
        codes = quantize.to_e4m3(np.array(list(cases), np.float32))
        self.assertEqual(codes.tolist(), list(cases.values()))

    def test_errors_stay_within_half_a_step(self):
        rng = np.random.default_rng(4)
        weight = rng.standard_normal((200, 256)).astype(np.float32)
        name = "model.layers.1.mlp.experts.0.up_proj.weight"
        for form, divisor in (("int4-g32", 7.5), ("int3-control", 3.5)):
            got = quantize.dequantised(name, weight, form).reshape(200, -1, 32)
            step = np.abs(weight.reshape(200, -1, 32)).max(-1, keepdims=True) / divisor
            self.assertLessEqual((np.abs(got - weight.reshape(200, -1, 32)) / step).max(), 0.55)
        got = quantize.dequantised(name, weight, "fp8")
        self.assertLessEqual((np.abs(got - weight) / np.abs(weight).max()).max(), 1 / 28)

    def test_every_format_is_written(self):
        for form in quantize.FORMATS:
            with tempfile.TemporaryDirectory() as folder:
                argv = ["quantize.py", "--in", MODEL, "--out", folder, "--format", form]
                sys.argv = argv
                quantize.main()
                names = quantize.read_safetensors(f"{folder}/model.safetensors")
                kinds = {dtype for dtype, _, _ in names.values()}
                self.assertIn("F8_E4M3" if form == "fp8" else "I32", kinds)


if __name__ == "__main__":
    unittest.main()
