"""No answer holds what another request said; contamination.py says how that is known."""

import asyncio
import random

import contamination


def test_a_foreign_answer_is_seen():
    questions = contamination.questions_of(100, random.Random(1))
    for asked in questions:
        asked.answer = asked.expected
    assert not contamination.foreign_answers(questions)
    first, last = questions[0], questions[-1]
    first.answer = last.expected
    assert contamination.foreign_answers(questions) == [(first.phrase, last.phrase)]


def test_no_answer_holds_anothers_phrase(start, request, tmp_path):
    n = request.config.getoption("--contamination-requests")
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    questions = contamination.questions_of(n, random.Random(seed))
    flags = (*contamination.FLAGS, *contamination.write_keys(tmp_path), "--integrity", "full")
    with start(*flags) as server:
        asyncio.run(contamination.ask_all(server, questions))
        counts, wrong = contamination.judge(server, questions)
        assert not wrong
        assert counts["answers"] == sum(not asked.leaves for asked in questions)
        print(counts)
