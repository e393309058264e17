"""Many tenants in a pool that is always full: no answer holds what another request said.

Every prompt asks for a phrase of its own, so that an answer shows whose pages it was read from. On
a CPU a request's bytes do not depend on the others': an answer that is not its own phrase is asked
for again, alone, and must be the same then (a mistake of the model's, not another's page).
"""

import asyncio
import json
import random

STREAMS = 48
TENANTS = 24
ABORTED = 0.05
REPEATED = 0.1  # asked twice by one tenant, which may meet its own pages
NEW_TOKENS = 8

# "Say exactly this:", ten groups of four digits, and the answer's begin, in kimi-nano's tokens, of
# which digits and blanks are one each: 63 in, 8 out.
HEAD = [4099, 367, 256, 4113, 3386, 3239, 1518, 1485]
TAIL = [4098, 4100, 1242, 4113, 4118, 4119]


class Asked:
    """A phrase whose first eight characters no other phrase of the run begins with."""

    def __init__(self, number, rng):
        first = f"{number:07d}"
        groups = [first[:4], first[4:] + str(rng.randrange(10))]
        groups += [f"{rng.randrange(10000):04d}" for _ in range(8)]
        self.phrase = " ".join(groups)
        self.tenant = rng.randrange(TENANTS)
        self.leaves = rng.random() < ABORTED
        self.answer = None

    @property
    def expected(self):
        return self.phrase[:NEW_TOKENS]

    def body(self, model):
        prompt = HEAD + [ord(c) for c in self.phrase] + TAIL
        assert len(prompt) <= 64
        return {"model": model, "prompt": prompt, "max_tokens": NEW_TOKENS, "temperature": 0}


async def ask(server, asked):
    data = json.dumps(asked.body(server.model)).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(
        b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        b"Authorization: Bearer key-%d\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
        % (asked.tenant, len(data))
        + data
    )
    await writer.drain()
    if asked.leaves:
        await asyncio.sleep(0.002)
    else:
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 "), head
        asked.answer = json.loads(body)["choices"][0]["text"]
    writer.close()


async def client(server, questions):
    for asked in questions:
        await ask(server, asked)


async def ask_all(server, questions):
    """All of them, one after the other in each of STREAMS clients."""
    left = iter(questions)
    await asyncio.gather(*(client(server, left) for _ in range(STREAMS)))


def questions_of(n, rng):
    numbers = rng.sample(range(10**7), n)
    out = []
    for number in numbers:
        out.append(Asked(number, rng))
        if rng.random() < REPEATED:
            again = Asked(number, rng)
            again.phrase, again.tenant = out[-1].phrase, out[-1].tenant
            out.append(again)
    return out[:n]


def foreign_answers(questions):
    """Pairs: a question that was answered, and the other one whose phrase the answer begins."""
    by_begin = {asked.expected: asked for asked in questions}
    return [
        (asked.phrase, by_begin[asked.answer].phrase)
        for asked in questions
        if asked.answer != asked.expected and asked.answer in by_begin
    ]


def test_a_foreign_answer_is_seen():
    questions = questions_of(100, random.Random(1))
    for asked in questions:
        asked.answer = asked.expected
    assert not foreign_answers(questions)
    first, last = questions[0], questions[-1]
    first.answer = last.expected
    assert foreign_answers(questions) == [(first.phrase, last.phrase)]


def test_no_answer_holds_anothers_phrase(start, request, tmp_path):
    n = request.config.getoption("--contamination-requests")
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    keys = tmp_path / "keys"
    keys.write_text("".join(f"tenant-{i} key-{i}\n" for i in range(TENANTS)))
    # A page is 64 tokens, and a request has two: the pool holds 24 of the 48.
    flags = ("--api-key-file", str(keys), "--max-total-tokens", "3072", "--context-length", "128")
    with start(*flags) as server:
        questions = questions_of(n, rng)
        asyncio.run(ask_all(server, questions))
        metrics = server.wait_idle()
        answered = [asked for asked in questions if not asked.leaves]
        assert not foreign_answers(questions)
        mistakes = [asked for asked in answered if asked.answer != asked.expected]
        for asked in mistakes:
            alone = Asked(0, rng)
            alone.phrase, alone.tenant, alone.leaves = asked.phrase, asked.tenant, False
            asyncio.run(ask(server, alone))
            assert alone.answer == asked.answer, f"{asked.phrase}: {asked.answer}"
        # Copying is what the model does well: were it not, nothing would have been shown.
        assert len(mistakes) <= 0.02 * len(answered)
        assert metrics["quire:requests_failed_total"] == 0
        assert metrics["sglang:num_requests_total"] >= len(answered)
        assert server.audit() == (200, {"clean": True})
        print(f"{len(answered)} answers, {len(mistakes)} mistakes of the model's, 0 of others'")
